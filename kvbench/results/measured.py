"""Latencies of requests as benchmarks of real engines wrote them down."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from kvbench.errors import ConfigError, reason
from kvbench.results.benchfiles import BenchFile, aiperf_rows, guidellm_rows, vllm_rows
from kvbench.serving.measured import read_measured
from kvbench.units import DURATION_UNITS

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from kvbench.serving.measured import Measured

    Times = npt.NDArray[np.float64]

LATENCIES = ("ttft", "tpot", "e2e")
UNITS = ("s", "ms", "us", "ns")
TIME_COLUMNS = ("arrival", *LATENCIES, "itl")
"""Columns of a plain file, each with its unit behind it: ``ttft_ms``. ``itl`` is the mean of a request's gaps, which
is its TPOT."""

COLUMNS = ("request_id", *(f"{name}_{unit}" for name in TIME_COLUMNS for unit in UNITS))


@dataclass(frozen=True, slots=True)
class MeasuredRequests:
    """What was measured, a value a request in the order of the file; times in ns, NaN where there is none.

    ``source``  of what kind the file is; ``notes`` what to know of it.
    ``ids``     of the requests; None: it has none.
    ``failed``  requests that have no latencies, as they failed or were cancelled.
    """

    name: str
    source: str
    ids: list[str] | None
    arrival_ns: Times
    latencies_ns: dict[str, Times]
    notes: tuple[str, ...] = field(default=())

    @property
    def failed(self) -> int:
        """Requests without any latency."""
        known = np.stack([~np.isnan(values) for values in self.latencies_ns.values()])
        return int((~known.any(axis=0)).sum())


def read_measured_requests(
    path: str | Path, *, columns: Mapping[str, str] | None = None, benchmark: int | None = None
) -> MeasuredRequests:
    """The requests of ``path``: what vLLM's ``bench serve --save-result --save-detailed``, AIPerf
    (``profile_export.jsonl``) or GuideLLM (JSON) wrote, or a CSV, JSON lines or Parquet file with any of
    :data:`COLUMNS`.

    ``columns``    what a plain file calls these columns.
    ``benchmark``  which one, from 1, of a file that has several; needed then.

    Raises ConfigError for a file that is none of these, or has no latencies.
    """
    path = Path(path)
    found = _bench_file(path, benchmark)
    if found is None:
        if benchmark is not None:
            raise ConfigError(f"--benchmark has no effect: {path} is a table")
        requests = _plain(read_measured(path, columns, COLUMNS))
    elif columns:
        raise ConfigError(f"--column has no effect: {path} is a file of {found.source}, whose names are known")
    else:
        requests = _of_bench(str(path), found)
    _check(requests)
    return requests


def _bench_file(path: Path, benchmark: int | None) -> BenchFile | None:
    """The rows of a benchmark's file; None for a plain table."""
    if path.suffix not in (".json", ".jsonl", ".ndjson"):
        return None
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {reason(error)}") from None
    documents = _documents(data)
    first = documents[0] if documents else None
    if not isinstance(first, dict):
        return None
    if "benchmarks" in first:
        return guidellm_rows(str(path), _choose(path, first["benchmarks"], benchmark))
    if "ttfts" in first or "mean_ttft_ms" in first:
        return vllm_rows(str(path), _choose(path, documents, benchmark))
    if "metadata" in first and ("metrics" in first or "error" in first):
        if benchmark is not None:
            raise ConfigError(f"--benchmark has no effect: {path} is a file of AIPerf, which has one")
        return aiperf_rows(str(path), documents)
    if len(documents) == 1 and data.strip().count(b"\n"):
        raise ConfigError(f"{path}: is not what vLLM's bench serve, AIPerf or GuideLLM write, nor one object a line")
    return None


def _documents(data: bytes) -> list[Any]:
    """The documents of a file: one, or one a line; none where it is not JSON."""
    try:
        return [msgspec.json.decode(data)]
    except msgspec.DecodeError:
        pass
    try:
        return msgspec.json.Decoder().decode_lines(data)
    except msgspec.DecodeError:
        return []


def _choose(path: Path, benchmarks: Any, number: int | None) -> Any:
    if not isinstance(benchmarks, list) or not benchmarks:
        raise ConfigError(f"{path}: has no benchmark")
    if number is None and len(benchmarks) > 1:
        raise ConfigError(f"{path}: has {len(benchmarks)} benchmarks; say which, as in --benchmark 1")
    if (number or 1) > len(benchmarks):
        raise ConfigError(f"--benchmark {number}: {path} has {len(benchmarks)}")
    return benchmarks[(number or 1) - 1]


def _of_bench(name: str, found: BenchFile) -> MeasuredRequests:
    rows = found.rows
    times = {key: np.array([row.get(key, np.nan) for row in rows], np.float64) for key in ("arrival", *LATENCIES)}
    times["tpot"][times["tpot"] <= 0] = np.nan  # as some write for an answer of one token
    ids = [str(row["request_id"]) for row in rows if row.get("request_id") is not None]
    requests = MeasuredRequests(
        name,
        found.source,
        ids if rows and len(ids) == len(rows) else None,
        times.pop("arrival"),
        times,
        found.notes,
    )
    return _from_arrival(requests, np.array([row.get("held", 0.0) for row in rows], np.float64))


def _from_arrival(requests: MeasuredRequests, held_ns: Times) -> MeasuredRequests:
    """Latencies from when a request was due: kvbench counts from there, so what the client held it back is added."""
    if not (held_ns > 0).any():
        return requests
    held_ns = np.maximum(held_ns, 0)
    latencies = {name: values + held_ns if name != "tpot" else values for name, values in requests.latencies_ns.items()}
    note = (
        f"TTFT and E2E count from when a request was due: the client sent it {held_ns.mean() / 1e6:.3g} ms later on "
        f"average, at most {held_ns.max() / 1e6:.3g} ms"
    )
    arrival = requests.arrival_ns - held_ns
    return replace(requests, arrival_ns=arrival, latencies_ns=latencies, notes=(*requests.notes, note))


def _plain(measured: Measured) -> MeasuredRequests:
    times = {name: _times(measured, name) for name in TIME_COLUMNS}
    itl = times.pop("itl")
    if not np.isnan(itl).all():
        if not np.isnan(times["tpot"]).all():
            raise ConfigError(f"{measured.name}: has both tpot and itl, which are two names of one thing; drop one")
        times["tpot"] = itl
    ids = [row.get("request_id") for row in measured.rows]
    known = all(each not in (None, "") for each in ids)
    arrival = times.pop("arrival")
    return MeasuredRequests(measured.name, "table", [str(each) for each in ids] if known else None, arrival, times)


def _times(measured: Measured, name: str) -> Times:
    """A column of times in whichever unit it has, ns; NaN where a cell is empty or there is no such column. A TPOT of
    0, as some write for an answer of one token, is none."""
    values = np.full(len(measured.rows), np.nan)
    given = [unit for unit in UNITS if measured.has(f"{name}_{unit}")]
    if len(given) > 1:
        raise ConfigError(f"{measured.name}: has {name} in {' and in '.join(given)}; which counts?")
    if given:
        column = f"{name}_{given[0]}"
        present = [at for at, row in enumerate(measured.rows) if not _is_empty(row.get(column))]
        found = np.array(measured.only(present).floats(column)) * DURATION_UNITS[given[0]]
        if name in ("tpot", "itl"):
            found[found == 0] = np.nan
        values[present] = found
    return values


def _is_empty(value: object) -> bool:
    return value in (None, "") or (isinstance(value, float) and np.isnan(value))


def _check(requests: MeasuredRequests) -> None:
    if all(np.isnan(values).all() for values in requests.latencies_ns.values()):
        wanted = ", ".join(f"{name}_ms" for name in LATENCIES)
        raise ConfigError(
            f"{requests.name}: has no latency of any request; a table has columns such as {wanted}: say which they "
            "are, as in --column ttft_ms=NAME"
        )
    for name in ("ttft", "e2e"):
        wrong = np.flatnonzero(requests.latencies_ns[name] <= 0)
        if len(wrong):
            raise ConfigError(f"{requests.name}, request {wrong[0] + 1} of the file: its {name} is not above 0")
