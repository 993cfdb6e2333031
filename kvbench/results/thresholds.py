"""Limits on how far a figure may fall or rise: ``token_rate:-1%``."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from kvbench.errors import ConfigError
from kvbench.units import DURATION_UNITS, split_quantity, unknown_unit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kvbench.results.compare import Compared, Comparison

_LIMIT = re.compile(r"^\s*(?P<name>[^:\s]+)\s*:\s*(?P<sign>[+-])(?P<amount>.+)$")
_SHORT = (
    (re.compile(r"^rates\.(\w+)$"), r"\1_rate"),
    (re.compile(r"^(belady|infinite)_rates\.(\w+)$"), r"\1_\2_rate"),
    (re.compile(r"^timed\.(\w+)_ns\.(\w+)$"), r"\1_\2"),
    (re.compile(r"^timed\.goodput\.(\w+)$"), r"goodput_\1"),
    (re.compile(r"^timed\.(?:throughput|work)\.(\w+)$"), r"\1"),
    (re.compile(r"^workers\.(max_over_mean_\w+)$"), r"\1"),
)
"""Path in the summary → the name for short."""

ROUNDING = Fraction(1, 10**12)
"""A limit is met by what differs from it by rounding alone: a share of the reference."""


@dataclass(frozen=True, slots=True)
class Limit:
    """How far ``figure``, a path in the summary, may move from the reference in one direction.

    ``text``      as it was given.
    ``falls``     whether it limits how much the figure falls, else how much it rises.
    ``amount``    in the figure's own unit, or a share of the reference where ``is_share``.
    """

    text: str
    figure: str
    falls: bool
    amount: Fraction
    is_share: bool

    def is_broken_by(self, compared: Compared, run: int) -> bool:
        """Whether run number ``run`` went farther. Raises ConfigError where there is nothing to compare."""
        reference, delta = compared.values[0], compared.delta(run)
        if reference is None or delta is None:
            raise ConfigError(f"--fail-if {self.text}: not all runs have {self.figure}")
        worse = Fraction(-delta if self.falls else delta)
        allowed = self.amount * abs(Fraction(reference)) if self.is_share else self.amount
        return worse > allowed + ROUNDING * abs(Fraction(reference))


@dataclass(frozen=True, slots=True)
class Broken:
    """A limit that ``run`` breaks, and by how much its figure moved: ``share`` is None where the reference is 0."""

    limit: str
    run: str
    figure: str
    delta: float
    share: float | None


def short_names(figures: Iterable[str]) -> dict[str, str]:
    """Name for short → figure, for those that have one: ``token_rate``, ``ttft_p99``, ``output_tokens_per_s``."""
    found: dict[str, str] = {}
    for figure in figures:
        for pattern, form in _SHORT:
            match = pattern.match(figure)
            if match is not None:
                found.setdefault(match.expand(form), figure)
    return found


def parse_limits(texts: Sequence[str], figures: Sequence[str]) -> list[Limit]:
    """The limits of ``NAME:±AMOUNT``, where NAME is a path or short name of ``figures``, ``-`` says how much it may
    fall and ``+`` how much it may rise: ``1%`` of the reference, ``0.01``, or a time. Raises ConfigError."""
    return [_parse(text, figures) for text in texts]


def broken_limits(comparison: Comparison, limits: Sequence[Limit]) -> list[Broken]:
    """Which runs break which limits."""
    broken = []
    for limit in limits:
        compared = comparison.figures[limit.figure]
        for at, run in enumerate(comparison.runs[1:], 1):
            if limit.is_broken_by(compared, at):
                broken.append(Broken(limit.text, run.name, limit.figure, compared.delta(at) or 0.0, compared.share(at)))
    return broken


def _parse(text: str, figures: Sequence[str]) -> Limit:
    match = _LIMIT.match(text)
    if match is None:
        raise ConfigError(
            f"--fail-if {text}: write a figure and how far it may fall or rise, as in token_rate:-1% or ttft_p99:+20ms"
        )
    where = f"--fail-if {text}"
    figure = figure_of(match["name"], figures, where)
    try:
        number, unit = split_quantity(match["amount"])
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    is_time = re.search(r"_ns(\.|$)", figure) is not None
    if unit == "%":
        number /= 100
    elif is_time:
        if unit not in DURATION_UNITS:
            advice = unknown_unit(unit, DURATION_UNITS) if unit else f"write for example {match['amount']}ms"
            raise ConfigError(f"{where}: {figure} is a time: {advice}")
        number *= DURATION_UNITS[unit]
    elif unit:
        raise ConfigError(f"{where}: {figure} has no unit; give a number, or a share such as 1%")
    return Limit(text, figure, match["sign"] == "-", number, unit == "%")


def figure_of(name: str, figures: Sequence[str], where: str) -> str:
    """The path of a figure from its path or its short name. Raises ConfigError, which begins with ``where``."""
    short = short_names(figures)
    if name in figures or name in short:
        return short.get(name, name)
    known = [*short, *figures]
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    advice = f"did you mean {' or '.join(near)}? " if near else ""
    raise ConfigError(f"{where}: unknown figure {name!r}; {advice}--json lists all {len(figures)} by path")
