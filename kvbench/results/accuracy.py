"""How far a timed replay is from what was measured (user report H-l)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kvbench.errors import ConfigError, OutputError
from kvbench.results.fromrows import window_of
from kvbench.results.measured import LATENCIES
from kvbench.results.parquet import read_manifest
from kvbench.results.rates import ratio
from kvbench.trace.columns import numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from kvbench.results.measured import MeasuredRequests

    Floats = npt.NDArray[np.float64]
    Int64s = npt.NDArray[np.int64]

PERCENTILES = (50, 90, 99)
STATISTICS = ("mean", *(f"p{percent}" for percent in PERCENTILES))

PAIRS_SCHEMA: Any = pa.schema(
    [
        pa.field("request", pa.int64(), nullable=False),
        pa.field("measured_row", pa.int64(), nullable=False),
        pa.field("latency", pa.string(), nullable=False),
        pa.field("predicted_ns", pa.float64(), nullable=False),
        pa.field("measured_ns", pa.float64(), nullable=False),
        pa.field("error_ns", pa.float64(), nullable=False),
        pa.field("engine", pa.string()),
    ]
)
"""A row for each request and latency that both have; ``measured_row`` from 1, ``error_ns`` is predicted - measured."""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """One latency of the ``n`` requests that have it in both.

    ``mape``                mean of |predicted - measured| / measured.
    ``predicted_ns``, ``measured_ns``  mean and percentiles (linear) of either.
    ``errors``              predicted / measured - 1 of each of these: above 0 where the replay is slower.
    ``pearson``, ``spearman``  correlation over requests, of values and of ranks; None where one side is constant.
    """

    n: int
    mape: float | None
    predicted_ns: dict[str, float]
    measured_ns: dict[str, float]
    errors: dict[str, float | None]
    pearson: float | None
    spearman: float | None


@dataclass(frozen=True, slots=True)
class MeasuredComparison:
    """A run beside a measurement.

    ``engine``     what was measured, with its version, as the user said; None: he did not.
    ``predicted``  what times the run: the compute model and, by tier, the devices, with their parameters.
    ``matched_by`` ``request_id`` or ``order``; ``requests`` how many were matched, and how many were not, and why.
    ``accuracy``   by latency, of those with any request.
    ``pairs``      the matched values, see :data:`PAIRS_SCHEMA`.
    """

    run: str
    measured: str
    source: str
    engine: str | None
    manifest: dict[str, Any]
    predicted: dict[str, Any]
    matched_by: str
    requests: dict[str, int]
    accuracy: dict[str, Accuracy]
    notes: tuple[str, ...]
    pairs: pa.Table

    def _repr_html_(self) -> str:
        from kvbench.results.notebook import measured_html

        return measured_html(self)

    def to_dict(self) -> dict[str, Any]:
        """All but the pairs, as plain values."""
        return {
            "run": self.run,
            "measured": self.measured,
            "source": self.source,
            "engine": self.engine,
            "predicted": self.predicted,
            "kvbench": self.manifest["kvbench"],
            "trace_digest": self.manifest["trace"]["digest"],
            "matched_by": self.matched_by,
            "requests": self.requests,
            "accuracy": {name: asdict(each) for name, each in self.accuracy.items()},
            "notes": list(self.notes),
        }


def compare_measured(path: str | Path, measured: MeasuredRequests, *, engine: str | None = None) -> MeasuredComparison:
    """Compare the timed run whose ``requests`` file is ``path`` with ``measured``. Requests count that are in the
    run's window. Raises OutputError for a file that is none of a timed replay, and ConfigError where requests cannot
    be matched."""
    table, manifest = _read(Path(path))
    run, real, matched_by = _match(table, measured, str(path))
    counted = window_of(manifest, len(table), str(path)).counted(
        numbers(table["request"].combine_chunks()), numbers(table["arrival_ns"].combine_chunks())
    )[run]
    done = np.array(table["status"].to_pylist(), object)[run] == "done"
    failed = np.all([np.isnan(values[real]) for values in measured.latencies_ns.values()], axis=0)
    kept = counted & done & ~failed
    accuracy, pieces = {}, []
    for name in LATENCIES:
        predicted = table[f"{name}_ns"].combine_chunks().cast(pa.float64()).fill_null(np.nan).to_numpy()[run]
        actual = measured.latencies_ns[name][real]
        both = kept & ~np.isnan(predicted) & ~np.isnan(actual)
        if both.any():
            accuracy[name] = accuracy_of(predicted[both], actual[both])
            pieces.append(_pairs(table, name, run[both], real[both], predicted[both], actual[both], engine))
    if not pieces:
        raise ConfigError(f"{path} and {measured.name}: no request that is done in both has a latency of both")
    requests = {
        "matched": len(run),
        "compared": int(kept.sum()),
        "outside_the_window": int((~counted).sum()),
        "not_done_in_the_run": int((counted & ~done).sum()),
        "failed_in_the_measurement": int((counted & done & failed).sum()),
        "in_the_run_alone": len(table) - len(run),
        "in_the_measurement_alone": len(measured.arrival_ns) - len(real),
    }
    return MeasuredComparison(
        str(path),
        measured.name,
        measured.source,
        engine,
        manifest,
        _timed_by(manifest),
        matched_by,
        requests,
        accuracy,
        measured.notes,
        pa.concat_tables(pieces),
    )


def accuracy_of(predicted: Floats, measured: Floats) -> Accuracy:
    """The figures of values of the same requests; all measured ones are above 0."""
    mine, theirs = _statistics(predicted), _statistics(measured)
    errors = {name: None if not theirs[name] else mine[name] / theirs[name] - 1 for name in STATISTICS}
    return Accuracy(
        len(predicted),
        ratio(float((np.abs(predicted - measured) / measured).sum()), len(predicted)),
        mine,
        theirs,
        errors,
        correlation(predicted, measured),
        correlation(ranks(predicted), ranks(measured)),
    )


def correlation(one: Floats, other: Floats) -> float | None:
    """Pearson's coefficient; None where either is constant."""
    if len(one) < 2 or np.ptp(one) == 0 or np.ptp(other) == 0:
        return None
    return float(np.clip(np.corrcoef(one, other)[0, 1], -1, 1))


def ranks(values: Floats) -> Floats:
    """The rank of each value from 1; equal ones share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    middle: Floats = last - (counts - 1) / 2
    return middle[inverse]


def _statistics(values: Floats) -> dict[str, float]:
    found = np.percentile(values, PERCENTILES).tolist()
    return {"mean": float(values.mean()), **dict(zip(STATISTICS[1:], found, strict=True))}


def _read(path: Path) -> tuple[pa.Table, dict[str, Any]]:
    try:
        manifest = read_manifest(path)
        names = pq.read_schema(path).names
        if "status" not in names or "ttft_ns" not in names:
            raise OutputError(
                f"{path} has no latencies: --measured needs the requests of a timed replay "
                "(kvbench replay --compute … -o FILE)"
            )
        wanted = ["request", "request_id", "arrival_ns", "status", *(f"{name}_ns" for name in LATENCIES)]
        return pq.read_table(path, columns=[name for name in wanted if name in names]), manifest
    except OSError as error:
        raise OutputError(f"{path} cannot be read: {error.strerror or error}") from None
    except pa.ArrowException:
        raise OutputError(f"{path} is no Parquet file: --measured needs the requests of a timed replay") from None


def _match(table: pa.Table, measured: MeasuredRequests, name: str) -> tuple[Int64s, Int64s, str]:
    """Places of the same requests in both, and how they were found."""
    if measured.ids is not None and "request_id" in table.column_names:
        found = _match_ids(table["request_id"].to_pylist(), measured.ids, name, measured.name)
        if len(found[0]):
            return (*found, "request_id")
    count = len(measured.arrival_ns)
    if len(table) != count:
        has_ids = measured.ids is not None and "request_id" in table.column_names
        why = "have no request_id in common" if has_ids else "do not both have request_id"
        raise ConfigError(
            f"{name} and {measured.name} {why}, and their requests cannot be matched by order: there are "
            f"{len(table):,} and {count:,}"
        )
    run = np.argsort(numbers(table["arrival_ns"].combine_chunks()), kind="stable")
    has_arrivals = not np.isnan(measured.arrival_ns).any()
    real = np.argsort(measured.arrival_ns, kind="stable") if has_arrivals else np.arange(count)
    return run if has_arrivals else np.arange(count), real, "order of arrival" if has_arrivals else "order in the file"


def _match_ids(mine: list[str | None], theirs: list[str], *names: str) -> tuple[Int64s, Int64s]:
    places: list[dict[str, int]] = []
    sides: tuple[Sequence[str | None], ...] = (mine, theirs)
    for ids, name in zip(sides, names, strict=True):
        found: dict[str, int] = {}
        for at, each in enumerate(ids):
            if each is not None and found.setdefault(str(each), at) != at:
                raise ConfigError(f"{name}: request_id {each!r} stands twice, so requests cannot be matched by it")
        places.append(found)
    both = [each for each in places[0] if each in places[1]]
    run, real = (np.array([found[each] for each in both], np.int64) for found in places)
    return run, real


def _pairs(
    table: pa.Table, name: str, run: Int64s, real: Int64s, predicted: Floats, actual: Floats, engine: str | None
) -> pa.Table:
    columns = [
        pa.array(numbers(table["request"].combine_chunks())[run]),
        pa.array(real + 1),
        pa.array([name] * len(run)),
        pa.array(predicted),
        pa.array(actual),
        pa.array(predicted - actual),
        pa.array([engine] * len(run), pa.string()),
    ]
    return pa.table(columns, schema=PAIRS_SCHEMA)


def _timed_by(manifest: dict[str, Any]) -> dict[str, Any]:
    config = manifest["config"]
    devices = {tier["name"]: tier["device"] for tier in config.get("tiers") or () if tier.get("device")}
    named = {key: config[key] for key in ("model", "tp") if config.get(key) is not None}
    return {"compute": config["compute"], "devices": devices, **named, "cautions": manifest.get("cautions", [])}
