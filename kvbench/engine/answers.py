"""What an engine's calls give, and what its observer is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class StoreResult(NamedTuple):
    """``requested_tokens`` of the chunks that were to be stored, ``stored_tokens`` of those that are new;
    ``reason`` why nothing was tried: ``unhealthy``, ``init_failed``, ``passive``, ``frozen``, or empty."""

    requested_tokens: int
    stored_tokens: int
    reason: str


class Retrieved(NamedTuple):
    """``mask``: bool, one for each token of the prompt, True where its KV was delivered.
    ``tier_tokens``: how many of these each tier delivered; their sum is that of the mask."""

    mask: npt.NDArray[np.bool_]
    tier_tokens: dict[str, int]


@dataclass(frozen=True, slots=True)
class Operation:
    """One end of a call: ``phase`` is ``start`` or ``finish``; each start has its finish, whatever happens.

    ``number`` counts the calls of all engines of a pool. ``reason``: why the call did nothing, or empty.
    """

    number: int
    kind: str
    phase: Literal["start", "finish"]
    time_ns: int
    reason: str = ""
