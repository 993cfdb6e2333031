"""Fits a compute model to the times of steps, or of prompts that are computed in several."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kvbench.config import parse_part
from kvbench.errors import ConfigError, KvbenchError, PluginError, one_line
from kvbench.fitting.fitted import Fit, FittedParameter, FittedRow, enough, rounded
from kvbench.fitting.solve import descend, explained, non_negative
from kvbench.replays.serveplan import FITTED_ON
from kvbench.serving.compute import ComputeContext
from kvbench.serving.measured import read_measured
from kvbench.specs import ComputeModelSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from kvbench.plugins import Registry
    from kvbench.serving.compute import ComputeModel
    from kvbench.serving.measured import Measured
    from kvbench.specs import Param, ParamValue

COLUMNS = (
    *("new_tokens", "context_tokens", "cached_tokens", "prompts"),
    *("decodes", "decode_context", "held_tokens", "capacity_tokens"),
)
"""What a row may say beside its time; what it does not say is 0 (``prompts``: 1)."""

MAX_STEPS = 1 << 16

Values = dict[str, "ParamValue"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One row: the arguments of each step, and the time of them all."""

    row: int
    what: str
    steps: tuple[tuple[Any, ...], ...]
    time_ns: float

    def of(self, model: ComputeModel) -> float:
        """What ``model`` says of it, ns."""
        return math.fsum(model.step_time_ns(*step, exact=True) for step in self.steps)


def fit_compute(
    registry: Registry,
    path: Path,
    model: str,
    *,
    columns: Mapping[str, str] | None = None,
    batch_tokens: int | None = None,
    engine: str | None = None,
) -> Fit:
    """``model`` (``NAME,key=value,…``) with the parameters that are not given fitted to the rows of ``path``.

    ``columns``       what the file calls :data:`COLUMNS` and the time.
    ``batch_tokens``  a prompt of more new tokens is computed in steps of so many, and its time is that of
                      all of them; None: in one step.
    ``engine``        whose times these are, with its version; it goes with the parameters.

    Errors are relative: a row of 10 ms counts as much as one of 10 s. Raises ConfigError for rows that are
    wrong, too few, or do not tell the parameters apart.
    """
    if engine is not None and (not engine.strip() or set(engine) & set(",=")):
        raise ConfigError(f"--engine = {engine!r} must be text without , and =, as in 'vLLM 0.33.0'")
    name, given = parse_part(model, "--model")
    spec = registry.get(ComputeModelSpec, name)
    samples = _samples(read_measured(path, columns, COLUMNS), batch_tokens)
    fitting = _Fitting(spec, given, samples)
    values = fitting.solve()
    made = _make(spec, values)
    rows = tuple(FittedRow(each.row, each.what, each.time_ns, each.of(made)) for each in samples)
    notes = [*fitting.notes, *filter(None, [enough(len(samples), fitting.unknown)])]
    shown = {param.name: values[param.name] for param in spec.params if _is_said(param, values, fitting.unknown)}
    if engine is not None:
        shown[FITTED_ON] = engine
    parameters = tuple(
        FittedParameter(param.name, float(values[param.name]), param.help, fitting.origin(param.name))
        for param in spec.params
        if param.name in values and param.type is float
    )
    return Fit(
        "compute model",
        name,
        str(path),
        parameters,
        rows,
        "--compute " + ",".join([name, *(f"{key}={_text(value)}" for key, value in shown.items())]),
        _toml(name, shown),
        "--config {path}",
        tuple(notes),
    )


class _Fitting:
    """The search for the parameters of one model.

    ``unknown``  those that the rows tell; ``notes`` what was noticed.
    """

    def __init__(self, spec: ComputeModelSpec, given: Values, samples: Sequence[Sample]) -> None:
        self.spec = spec
        self.given = given
        self.samples = samples
        self.notes: list[str] = []
        self.params = {param.name: param for param in spec.params}
        self.linear = [name for name in spec.linear if name not in given]
        self.curved = [name for name in spec.curved if name not in given]
        if not self.linear and not self.curved:
            what = (
                "all its parameters are given" if spec.linear + spec.curved else "none of its parameters can be fitted"
            )
            raise ConfigError(f"--model {spec.name}: {what}")
        self._check_mix()
        self.times = np.array([each.time_ns for each in samples])
        self.base: Values = spec.parse_params(given | {name: self._least(name) for name in self.linear})
        self._choose()

    @property
    def unknown(self) -> list[str]:
        return [*self.linear, *self.curved]

    def origin(self, name: str) -> str:
        """Where the value of a parameter is from."""
        return "fit" if name in self.unknown else "given" if name in self.given else "default"

    def solve(self) -> Values:
        """All parameters."""
        if len(self.samples) < len(self.unknown):
            raise ConfigError(
                f"--model {self.spec.name}: {len(self.samples)} rows do not tell {len(self.unknown)} parameters "
                f"({', '.join(self.unknown)}); measure more, or give some, as in --model {self.spec.name},"
                f"{self.unknown[-1]}={_text(self._start(self.unknown[-1]))}"
            )
        values = dict(self.base)
        if self.curved:
            start = np.array([self._start(name) for name in self.curved])
            found = descend(lambda at: self._errors(values | self._named(at)), start)
            values |= {name: rounded(float(value)) for name, value in self._named(found).items()}
        values |= self._solve_linear(values)
        self._note_bounds(values)
        return values

    def _named(self, found: npt.NDArray[np.float64]) -> Values:
        """The curved parameters, no less than they may be."""
        return {name: max(float(value), self._least(name)) for name, value in zip(self.curved, found, strict=True)}

    def _errors(self, values: Values) -> npt.NDArray[np.float64]:
        """Relative errors with ``values`` and the best linear parameters for them."""
        columns, offset = self._columns(values)
        weighed = columns / self.times[:, None]
        target = 1 - offset / self.times
        x = non_negative(weighed, target, self._free())
        errors: npt.NDArray[np.float64] = weighed @ x - target
        return errors

    def _solve_linear(self, values: Values) -> Values:
        if not self.linear:
            return {}
        columns, offset = self._columns(values)
        x = non_negative(columns / self.times[:, None], 1 - offset / self.times, self._free())
        return {name: rounded(self._least(name) + float(more)) for name, more in zip(self.linear, x, strict=True)}

    def _columns(self, values: Values) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """What one of each linear parameter adds to the rows, and what they take without any."""
        offset = self._of(values)
        more = [self._of(values | {name: self._least(name) + 1}) - offset for name in self.linear]
        return np.column_stack([np.zeros((len(self.samples), 0)), *more]), offset

    def _of(self, values: Values) -> npt.NDArray[np.float64]:
        made = _make(self.spec, values)
        return np.array([each.of(made) for each in self.samples])

    def _choose(self) -> None:
        """Keep what the rows depend on; what is left is what they tell."""
        columns, _ = self._columns(self.base)
        silent = [name for at, name in enumerate(self.linear) if not columns[:, at].any()]
        here = self._of(self.base)
        for name in self.curved:
            moved = self.base | {name: 2 * self._start(name)}
            silent += [name] if np.array_equal(self._of(moved), here) else []
        kept = []
        for name in silent:
            default = self.params[name].default
            if default is None and self.params[name].optional:
                self.base.pop(name, None)
                kept.append(name)
            else:
                self.base[name] = self._least(name) if default is None else default
                kept.append(f"{name} (which stays {_text(self.base[name])})")
        if kept:
            self.notes.append(f"no row depends on {', '.join(kept)}")
        self.linear = [name for name in self.linear if name not in silent]
        self.curved = [name for name in self.curved if name not in silent]
        if not self.unknown:
            raise ConfigError(f"--model {self.spec.name}: no row depends on any of its parameters")
        columns, _ = self._columns(self.base)
        if len(self.samples) >= len(self.unknown) and (at := explained(columns / self.times[:, None])) is not None:
            raise ConfigError(
                f"--model {self.spec.name}: the rows do not tell {self.linear[at]} from {', '.join(self.linear[:at])}; "
                f"measure other sizes, or give it, as in --model {self.spec.name},{self.linear[at]}=0"
            )

    def _check_mix(self) -> None:
        both = any(step[0] and step[1] for each in self.samples for step in each.steps)
        if both and self.given.get("mix") == "max":
            raise ConfigError(f"--model {self.spec.name}: rows with prefill and decodes are fitted with mix=sum alone")

    def _note_bounds(self, values: Values) -> None:
        for name in self.linear:
            if values[name] == 0 and self.params[name].minimum == 0:
                self.notes.append(f"{name} is 0: the rows would have it negative, or they do not need it")

    def _free(self) -> list[bool]:
        return [self.params[name].minimum is None for name in self.linear]

    def _least(self, name: str) -> float:
        return self.params[name].minimum or 0.0

    def _start(self, name: str) -> float:
        default = self.params[name].default
        return 0.5 if default is None and name in self.curved else float(default or 0)


def _make(spec: ComputeModelSpec, values: Values) -> ComputeModel:
    try:
        model: ComputeModel = spec.load()(ComputeContext(), **values)
    except KvbenchError:
        raise
    except Exception as error:  # a stranger's code may raise anything
        raise PluginError(f"{spec.kind} {spec.name} cannot be made: {one_line(error)}") from error
    return model


def _samples(measured: Measured, batch_tokens: int | None) -> list[Sample]:
    known = [name for name in COLUMNS if measured.has(name)]
    if not {"new_tokens", "decodes"} & set(known):
        raise ConfigError(
            f"{measured.name}: has neither new_tokens nor decodes; the columns are {', '.join(measured.columns)}: say "
            "which it is, as in --column new_tokens=NAME"
        )
    cells = {name: measured.counts(name, 1 if name == "prompts" else 0) for name in COLUMNS}
    samples = []
    for at, time_ns in enumerate(measured.times_ns()):
        row = {name: cells[name][at] for name in COLUMNS}
        what = ", ".join(f"{name} {row[name]:,}" for name in known)
        if row["new_tokens"] == 0 and row["decodes"] == 0:
            raise measured.error(at, "new_tokens", 0, "a row computes prompt tokens, or has decodes")
        if measured.has("context_tokens") and row["cached_tokens"] > row["context_tokens"]:
            raise measured.error(at, "cached_tokens", row["cached_tokens"], "is more than context_tokens")
        if not measured.has("decode_context"):
            row["decode_context"] = row["decodes"] * row["context_tokens"] if row["new_tokens"] == 0 else 0
        samples.append(Sample(measured.numbers[at], what, tuple(_steps(row, batch_tokens)), time_ns))
    return samples


def _steps(row: dict[str, int], batch_tokens: int | None) -> list[tuple[Any, ...]]:
    """The steps of a row: equal prompts side by side, cut where a step is full."""
    rest = (row["decodes"], row["decode_context"], row["held_tokens"], row["capacity_tokens"])
    new, cached = row["new_tokens"], row["cached_tokens"]
    context = row["context_tokens"] or cached
    if new == 0:
        return [([], *rest)]
    size = new if batch_tokens is None else max(batch_tokens // max(row["prompts"], 1), 1)
    if new > size * MAX_STEPS:
        raise ConfigError(
            f"--batch-tokens {batch_tokens}: a prompt of {new:,} tokens takes more than {MAX_STEPS:,} steps"
        )
    steps = []
    for start in range(0, new, size):
        chunk = (min(size, new - start), context + start, cached if start == 0 else 0)
        steps.append(([chunk] * max(row["prompts"], 1), *rest))
    return steps


def _is_said(param: Param, values: Values, unknown: list[str]) -> bool:
    """Whether the option must name it."""
    return param.name in values and (param.name in unknown or values[param.name] != param.default)


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) and value == float(f"{value:g}") else str(value)


def _toml(name: str, values: Values) -> str:
    import tomli_w

    return tomli_w.dumps({"compute": {"name": name, **values}})
