"""The figures of a summary that matter most, and how tables write numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbench.units import format_count, format_duration_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

NOTHING = "–"
"""Where nothing is known."""


def percent(rate: float | None) -> str:
    """A rate as people read it; a dash where nothing is known."""
    return NOTHING if rate is None else f"{100 * rate:.2f} %"


def number(value: int | None) -> str:
    """A whole number in full."""
    return NOTHING if value is None else f"{value:,}"


def count(value: float | None) -> str:
    """A number with four digits, large ones with their prefix."""
    return NOTHING if value is None else f"{value:.4g}" if abs(value) < 10_000 else format_count(value)


def duration(nanoseconds: float | None) -> str:
    """A time with three digits; a dash where there is none."""
    return NOTHING if nanoseconds is None else format_duration_ns(nanoseconds)


def change(share: float | None) -> str:
    """How far a figure moved, as a share of what it was; ``=`` where it did not."""
    return NOTHING if share is None else "=" if not share else f"{100 * share:+.2f} %"


SHOWN: Mapping[str, tuple[str, Callable[[float | None], str]]] = {
    "rates.token": ("token rate", percent),
    "rates.block": ("block rate", percent),
    "workers.max_over_mean_requests": ("max/mean requests of a worker", count),
    **{f"timed.ttft_ns.{name}": (f"TTFT {name}", duration) for name in ("mean", "p50", "p95", "p99")},
    **{f"timed.tpot_ns.{name}": (f"TPOT {name}", duration) for name in ("mean", "p95")},
    **{f"timed.e2e_ns.{name}": (f"E2E {name}", duration) for name in ("mean", "p95")},
    "timed.throughput.requests_per_s": ("requests a second", count),
    "timed.throughput.output_tokens_per_s": ("output tokens a second", count),
    "timed.goodput.requests_per_s": ("goodput, requests a second", count),
    "timed.goodput.share_of_done": ("goodput, of those done", percent),
    "timed.workers.utilisation": ("workers busy", percent),
}
"""Figure → what it is called in a table, and how it is written."""
