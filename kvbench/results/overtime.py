"""A trace over its time: rate, tokens, and the blocks that are alive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kvbench.results.rates import ratio

if TYPE_CHECKING:
    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]

WINDOWS = 60


def arrival_facts(arrivals: Int64s) -> dict[str, Any]:
    """Span, rate, ties and gaps of rising ``arrivals``, and the extreme at which most rows are."""
    gaps = np.diff(arrivals)
    if len(arrivals) == 0:
        return {"first_ns": None, "last_ns": None, "span_ns": None, "distinct": 0, "ties": 0, "gap_ns": None}
    span = int(arrivals[-1] - arrivals[0])
    return {
        "first_ns": int(arrivals[0]),
        "last_ns": int(arrivals[-1]),
        "span_ns": span,
        "requests_per_s": ratio(len(arrivals) * 1e9, span),
        "distinct": int((gaps != 0).sum()) + 1,
        "ties": int((gaps == 0).sum()),
        "extreme": _extreme(arrivals),
        "gap_ns": None if len(gaps) == 0 else _gaps(gaps),
    }


def _gaps(gaps: Int64s) -> dict[str, Any]:
    low, high = int(gaps.min()), int(gaps.max())
    mean = float(gaps.mean())
    return {
        "min": low,
        "p50": float(np.median(gaps)),
        "max": high,
        "mean": mean,
        "cv": ratio(float(gaps.std()), mean),
        "at_min_share": float((gaps == low).mean()),
        "at_max_share": float((gaps == high).mean()),
    }


def _extreme(arrivals: Int64s) -> dict[str, Any]:
    """Of the first and the last time, the one at which more rows arrive."""
    counts = {"first": int((arrivals == arrivals[0]).sum()), "last": int((arrivals == arrivals[-1]).sum())}
    which = max(counts, key=lambda name: counts[name])
    at = arrivals[0] if which == "first" else arrivals[-1]
    return {
        "which": which,
        "arrival_ns": int(at),
        "rows": counts[which],
        "share": counts[which] / len(arrivals),
    }


def windows(
    arrivals: Int64s, input_tokens: Int64s, first_ns: Int64s | None, last_ns: Int64s | None
) -> list[dict[str, Any]]:
    """Equal parts of the span: requests, tokens, and of the blocks those used for the first time, and those
    at the window's end that were used and will be again: what a cache with foresight would hold.

    ``first_ns``, ``last_ns``  times of the first and last use of each block; None where there are no blocks.
    """
    if len(arrivals) == 0 or arrivals[-1] == arrivals[0]:
        return []
    edges = np.linspace(int(arrivals[0]), int(arrivals[-1]), WINDOWS + 1).astype(np.int64)
    edges[-1] = arrivals[-1]
    length_s = (int(arrivals[-1]) - int(arrivals[0])) / WINDOWS / 1e9
    # The last window has the last arrival, too.
    cuts = np.searchsorted(arrivals, edges[1:-1], side="left")
    bounds = np.concatenate([[0], cuts, [len(arrivals)]])
    sums = np.concatenate([[0], np.cumsum(input_tokens)])
    rows = [
        {
            "from_ns": int(start),
            "requests": int(stop_row - start_row),
            "requests_per_s": (int(stop_row) - int(start_row)) / length_s,
            "input_tokens": int(sums[stop_row] - sums[start_row]),
        }
        for start, start_row, stop_row in zip(edges[:-1], bounds[:-1], bounds[1:], strict=True)
    ]
    if first_ns is None or last_ns is None:
        return rows
    first, last = np.sort(first_ns), np.sort(last_ns)
    begun = np.searchsorted(first, edges[1:], side="left")
    over = np.searchsorted(last, edges[1:], side="left")
    begun[-1], over[-1] = len(first), len(last)
    new = np.diff(np.concatenate([[0], begun]))
    for row, new_blocks, live in zip(rows, new.tolist(), (begun - over).tolist(), strict=True):
        row["new_blocks"], row["live_blocks"] = new_blocks, live
    return rows
