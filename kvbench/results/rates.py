"""The named rates (semantics §10.1). There is no bare "hit rate": on one trace these differ by
twenty points, and each has its use."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

RATES: Mapping[str, str] = {
    "token": "hit tokens / input tokens",
    "block": "hit ids / ids, partial last blocks in the denominator",
    "full_block": "hit full blocks / full blocks",
    "request_mean": "mean over requests of hit ids / ids",
    "request_mean_token": "mean over requests of hit tokens / input tokens",
    "request_any": "share of requests with a hit",
    "block_any": "resident ids / ids, those behind a gap included",
}
"""Name and definition of each rate. Hits are prefix hits but for ``block_any``, which is what a plain
cache simulator counts. A ratio is one of sums, unless it is called a mean; where nothing was asked
it is null. ``token`` is the share of prefill work that is saved; ``request_mean`` is what AIPerf
calls the cache hit rate."""


def ratio(part: float, whole: float) -> float | None:
    """``part / whole``, or None where there is nothing to divide by."""
    return part / whole if whole else None
