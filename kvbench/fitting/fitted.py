"""What a fit found."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

DIGITS = 6
"""Significant digits of a parameter: as it is printed, so it is judged."""


@dataclass(frozen=True, slots=True)
class FittedParameter:
    """A parameter; ``origin`` says where its value is from: ``fit``, ``given`` or ``default``."""

    name: str
    value: float
    help: str
    origin: str


@dataclass(frozen=True, slots=True)
class FittedRow:
    """A measured row: what it is of, its time, and the model's."""

    row: int
    what: str
    measured_ns: float
    fitted_ns: float

    @property
    def error(self) -> float:
        """The model's time relative to the measured one, less 1."""
        return self.fitted_ns / self.measured_ns - 1


@dataclass(frozen=True, slots=True)
class Fit:
    """The result of a fit.

    ``kind``, ``name``  compute model or device, and which.
    ``use``       the options of ``kvbench replay`` that use it; ``toml`` the same as a file, and ``file_use`` the
                  options for that, with ``{path}`` for its name.
    ``notes``     what to know of it.
    """

    kind: str
    name: str
    source: str
    parameters: tuple[FittedParameter, ...]
    rows: tuple[FittedRow, ...]
    use: str
    toml: str
    file_use: str
    notes: tuple[str, ...] = ()

    def use_of_file(self, path: Path) -> str:
        """The options of ``kvbench replay`` that use ``toml``, written to ``path``."""
        return self.file_use.format(path=path)

    @property
    def mape(self) -> float:
        """Mean of the absolute relative errors."""
        return sum(abs(row.error) for row in self.rows) / len(self.rows)

    @property
    def max_error(self) -> float:
        """The largest of them."""
        return max(abs(row.error) for row in self.rows)

    @property
    def r_squared(self) -> float | None:
        """Share of the variance of the times that the model explains; None where they do not vary."""
        mean = sum(row.measured_ns for row in self.rows) / len(self.rows)
        total = sum((row.measured_ns - mean) ** 2 for row in self.rows)
        rest = sum((row.measured_ns - row.fitted_ns) ** 2 for row in self.rows)
        return None if total == 0 else 1 - rest / total

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            "kind": self.kind,
            "name": self.name,
            "source": self.source,
            "parameters": [asdict(parameter) for parameter in self.parameters],
            "rows": [asdict(row) | {"error": row.error} for row in self.rows],
            "mape": self.mape,
            "max_error": self.max_error,
            "r_squared": self.r_squared,
            "use": self.use,
            "toml": self.toml,
            "notes": list(self.notes),
        }


def rounded(value: float) -> float:
    """``value`` with :data:`DIGITS` significant digits."""
    return float(f"{value:.{DIGITS}g}")


def enough(rows: int, unknown: Sequence[str]) -> str | None:
    """What to say of ``rows`` rows for parameters; None if there are more than enough."""
    if rows == len(unknown):
        return f"{rows} rows for as many parameters: a good fit proves nothing"
    return None
