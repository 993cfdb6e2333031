"""The named rates of a curve, and the error bars of a sampled one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kvbench.errors import ConfigError
from kvbench.replays.curve import GRID
from kvbench.replays.distances import FIGURES
from kvbench.results.rates import RATES

if TYPE_CHECKING:
    import numpy.typing as npt

    from kvbench.replays.curve import Asked, CurvePass

    Int64s = npt.NDArray[np.int64]
    Floats = npt.NDArray[np.float64]

LEVEL = 0.99
T_QUANTILES = (
    *(63.66, 9.92, 5.84, 4.60, 4.03, 3.71, 3.50, 3.36, 3.25),
    *(3.17, 3.11, 3.05, 3.01, 2.98, 2.95, 2.92, 2.90, 2.88, 2.86),
)
"""Student's t at 99 % (two-sided) for 1, 2, … degrees of freedom."""
METHOD = (
    f"{LEVEL:.0%} intervals: delete-a-group jackknife over hash groups of trees or sessions, Student's t on the logit "
    "scale, and one tree's worth added at either end for what a small sample may have missed"
)


class RateTable:
    """Rates of a finished pass at any capacities."""

    def __init__(self, found: CurvePass) -> None:
        self.found = found
        self.sampled = found.sampler is not None
        if found.sampler is not None and found.counted.requests_with_blocks == 0:
            unit = found.sampler.choice.by
            raise ConfigError(
                f"--sample = {found.sampler.choice.rate:g}: none of {found.sampler.all_units:,} {unit}s is in the "
                "sample; raise the rate, or take another seed"
            )
        self._errors: Floats | None = self._grid_errors() if self.sampled else None

    def figures(self, capacities: Int64s) -> Floats:
        """The FIGURES of rising capacities."""
        return self.found.read(capacities)

    def values(self, capacities: Int64s) -> Floats:
        """Rates (in the order of RATES) of rising capacities, a row each; NaN where nothing was asked."""
        return rates_of(self.figures(capacities), self.found.counted, self.found.block_tokens)

    def rates(self, capacities: Int64s) -> list[dict[str, float | None]]:
        """Rates by name of each of the rising capacities; None where nothing was asked."""
        return [named(row) for row in self.values(capacities)]

    def bounds(self, capacities: Int64s) -> tuple[Floats, Floats] | None:
        """Lower and upper ends of the error bars of each rate; None for a whole trace."""
        if self._errors is None or self.found.sampler is None:
            return None
        errors = np.column_stack([np.interp(np.log(capacities), np.log(GRID), each) for each in self._errors.T])
        return intervals(self.values(capacities), errors, self.found.sampler.units, self._groups)

    def _grid_errors(self) -> Floats:
        """Standard errors of the rates at GRID."""
        groups = list(self.found.groups())
        self._groups = len(groups)
        figures = np.array([figure for _, figure in groups])
        total = figures.sum(axis=0)
        left_out = np.array(
            [
                rates_of(total - figure, minus(self.found.counted, asked), self.found.block_tokens)
                for asked, figure in groups
            ]
        )
        spread = np.nansum((left_out - np.nanmean(left_out, axis=0)) ** 2, axis=0) if len(groups) > 1 else total * 0
        return np.asarray(np.sqrt(spread * (len(groups) - 1) / len(groups)))


def minus(asked: Asked, other: Asked) -> Asked:
    """What remains of ``asked`` without ``other``."""
    return type(asked)(*(getattr(asked, name) - getattr(other, name) for name in type(asked).__dataclass_fields__))


def rates_of(figures: Floats, asked: Asked, block_tokens: int) -> Floats:
    """The rates (in the order of RATES) that rows of FIGURES make; NaN where nothing was asked."""
    by_name = dict(zip(FIGURES, figures.T, strict=True))
    full = by_name["hit_blocks"] - by_name["tail_blocks"]
    tokens = full * block_tokens + by_name["tail_tokens"]
    whole = asked.blocks
    parts = {
        "token": (tokens, asked.input_tokens),
        "block": (by_name["hit_blocks"], whole),
        "full_block": (full, asked.full_blocks),
        "request_mean": (by_name["block_shares"], asked.requests_with_blocks),
        "request_mean_token": (by_name["token_shares"], asked.requests),
        "request_any": (by_name["any_requests"], asked.requests),
        "block_any": (by_name["resident_blocks"], whole),
    }
    return np.column_stack(
        [parts[name][0] / parts[name][1] if parts[name][1] else np.full(len(figures), np.nan) for name in RATES]
    )


def intervals(rates: Floats, errors: Floats, units: int, groups: int) -> tuple[Floats, Floats]:
    """Lower and upper ends: see METHOD. ``errors`` are standard errors."""
    t = T_QUANTILES[min(max(groups - 1, 1), len(T_QUANTILES)) - 1]
    errors = np.sqrt(errors**2 + (0.5 / (units + 1)) ** 2)

    def upper(rate: Floats) -> Floats:
        centre = np.clip((units * rate + 1) / (units + 1), 1e-12, 1 - 1e-12)
        logit = np.log(centre / (1 - centre)) + t * errors / (centre * (1 - centre))
        return np.maximum(1 / (1 + np.exp(-np.clip(logit, -700, 700))), rate)

    return 1 - upper(1 - rates), upper(rates)


def named(row: Floats) -> dict[str, float | None]:
    """A row of rates by name, NaN as None."""
    values: list[Any] = row.tolist()
    return {name: None if value != value else value for name, value in zip(RATES, values, strict=True)}
