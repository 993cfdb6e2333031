"""The contract of a synthetic workload: a trace that a seed and a few parameters make.

The same seed and parameters make the same rows in every process and on every machine. Each kind of
random choice draws from its own stream (:func:`stream`), so that a change of one parameter leaves
the other choices as they were.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from kvbench.trace.schema import TraceFacts


class Workload(ABC):
    """Makes the rows of one synthetic trace."""

    @property
    @abstractmethod
    def facts(self) -> TraceFacts:
        """What holds for all rows."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """Version 1 schema of the batches."""

    @abstractmethod
    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows in order of arrival; the same ones at each call."""

    @property
    def expected_token_rate(self) -> float | None:
        """Expected hit tokens over expected input tokens with a cache that holds everything (full blocks, one
        pass from empty); None where no formula is known."""
        return None

    @property
    def shared_prefixes(self) -> Mapping[str, int]:
        """Tokens of the prefixes that prompts are made to share, by the parameters that they come from."""
        return {}


def unshared_prefixes(workload: Workload) -> list[str]:
    """A sentence for each prefix that is asked to be shared and is shorter than a block, so that no block of
    it is."""
    block_tokens = workload.facts.block_tokens or 1
    return [
        f"{name} = {tokens:,} is less than a block of {block_tokens:,} tokens: prompts that share no more than this "
        "have no block in common, and none of it is reused; raise it, or lower block_tokens"
        for name, tokens in workload.shared_prefixes.items()
        if 0 < tokens < block_tokens
    ]


def stream(seed: int, *names: str | int) -> random.Random:
    """The random stream of a seed for one purpose. Use its ``random()`` only: that is what Python keeps stable."""
    return random.Random("/".join(map(str, (seed, *names))))
