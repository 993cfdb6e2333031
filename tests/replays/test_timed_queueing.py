"""Timed replay against queueing theory: one worker that computes one prompt at a time is an M/G/1 server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kvbench
from kvbench.plugins import load_registry
from kvbench.trace.schema import TraceFacts

TOKEN_NS = 100
SERVICE_NS = 1_000_000
"""Mean time of a prompt."""

APART_NS = 3_600_000_000_000
"""Between the starts of two replications: by then the one before has long ended."""

UTILISATIONS = (0.3, 0.6, 0.8, 0.9)
REPLICATIONS = 120
CUSTOMERS = {0.3: 200, 0.6: 300, 0.8: 500, 0.9: 1000}
"""Of a replication: the fuller the server, the longer its waits depend on each other."""

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Queue:
    """A trace of independent replications, and what the replay of it says.

    ``counted``  waits of the customers: replications × customers. The backlog that a replication begins with is
                 a request of its own, and not among them.
    """

    arrival_ns: Int64s
    service_ns: Int64s
    counted: npt.NDArray[np.bool_]
    result: kvbench.ReplayResult

    def column(self, name: str) -> Int64s:
        assert self.result.requests is not None
        found: Int64s = self.result.requests[name].to_numpy()
        return found


def serve(arrival_ns: Int64s, service_ns: Int64s, **settings: object) -> kvbench.ReplayResult:
    """One server, first come first served: steps of one prompt, each computed at once."""
    trace = pa.table({"arrival_ns": arrival_ns, "input_tokens": pa.array(service_ns // TOKEN_NS, pa.uint32())})
    return kvbench.replay(
        trace.replace_schema_metadata(TraceFacts(block_tokens=16).to_metadata()),
        compute=f"fixed,prefill_ms_per_token={TOKEN_NS / 1e6},decode_ms=0",
        worker="sequences=1,chunked=false,decode=false",
        keep_requests=True,
        registry=load_registry(autoload=False),
        **settings,
    )


def services(random: np.random.Generator, kind: str, count: int) -> Int64s:
    """Service times: all alike (M/D/1), or exponential (M/M/1), in whole tokens."""
    if kind == "D":
        return np.full(count, SERVICE_NS, np.int64)
    return np.maximum(np.rint(random.exponential(SERVICE_NS / TOKEN_NS, count)).astype(np.int64), 1) * TOKEN_NS


def backlog(random: np.random.Generator, kind: str, utilisation: float) -> int:
    """What a customer finds to do in the steady state, rounded to tokens: a geometric number of residual services
    (Pollaczek–Khinchine), which are uniform or exponential again."""
    count = int(random.geometric(1 - utilisation)) - 1
    residuals = random.uniform(0, SERVICE_NS, count) if kind == "D" else random.exponential(SERVICE_NS, count)
    return round(residuals.sum() / TOKEN_NS) * TOKEN_NS


def queue(kind: str, utilisation: float) -> Queue:
    """Poisson arrivals in replications that begin in the steady state, so that nothing has to be left out."""
    random = np.random.default_rng([ord(kind), round(100 * utilisation)])
    customers = CUSTOMERS[utilisation]
    arrivals, works, counted = [], [], []
    for replication in range(REPLICATIONS):
        found = backlog(random, kind, utilisation)
        gaps = random.exponential(SERVICE_NS / utilisation, customers)
        first = [0] if found else []
        arrivals.append(replication * APART_NS + np.concatenate([first, np.cumsum(gaps)]).astype(np.int64))
        works.append(np.concatenate([np.array([found][: len(first)], np.int64), services(random, kind, customers)]))
        counted.append(np.arange(customers + len(first)) >= len(first))
    arrival_ns, service_ns = np.concatenate(arrivals), np.concatenate(works)
    return Queue(arrival_ns, service_ns, np.concatenate(counted), serve(arrival_ns, service_ns))


@pytest.fixture(scope="module", params=[(kind, share) for kind in "DM" for share in UTILISATIONS], ids=str)
def case(request: pytest.FixtureRequest) -> tuple[str, float, Queue]:
    kind, utilisation = request.param
    return kind, utilisation, queue(kind, utilisation)


def test_the_mean_wait_is_that_of_pollaczek_and_khinchine(case: tuple[str, float, Queue]) -> None:
    """ρ · E[S²] / (2 · E[S] · (1 − ρ)) within three standard errors, which are those of independent replications:
    waits within one of them depend on each other."""
    kind, utilisation, served = case
    means = served.column("queue_ns")[served.counted].reshape(REPLICATIONS, -1).mean(axis=1)
    square = {"D": 1, "M": 2}[kind] * SERVICE_NS**2
    expected = utilisation * square / (2 * SERVICE_NS * (1 - utilisation))
    error = means.std(ddof=1) / np.sqrt(REPLICATIONS)
    assert abs(means.mean() - expected) < 3 * error
    assert error < 0.1 * expected


def test_each_wait_is_that_of_lindley(case: tuple[str, float, Queue]) -> None:
    """Each customer waits as long as the one before, and that one's service, less the time between them; and all
    of the work is done (semantics §13)."""
    _, _, served = case
    # W(n+1) = max(0, W(n) + S(n) - A(n)): a walk above its lowest point.
    walk = np.concatenate([[0], np.cumsum(served.service_ns[:-1] - np.diff(served.arrival_ns))])
    waits = walk - np.minimum.accumulate(walk)
    assert np.array_equal(served.column("queue_ns"), waits)
    assert np.array_equal(served.column("prefill_ns"), served.service_ns)
    assert np.array_equal(served.column("end_ns"), served.column("arrival_ns") + waits + served.service_ns)
    assert served.result.summary["timed"]["workers"]["each"][0]["busy_ns"] == served.service_ns.sum()


def test_utilisation_and_littles_law(tmp_path: Path) -> None:
    """The mean number in the system, sampled, is the arrival rate times the mean time there."""
    random = np.random.default_rng(1)
    count, utilisation = 5_000, 0.8
    arrival_ns = np.cumsum(random.exponential(SERVICE_NS / utilisation, count)).astype(np.int64)
    arrival_ns -= arrival_ns[0]
    timeline = tmp_path / "timeline.parquet"
    result = serve(arrival_ns, services(random, "M", count), timeline=str(timeline), sample="2ms")
    rows = pq.read_table(timeline, filters=[("kind", "=", "worker")])
    assert result.requests is not None
    ends = np.sort(result.requests["end_ns"].to_numpy())
    times = rows["time_ns"].to_numpy()
    present = rows["waiting"].to_numpy() + rows["prefilling"].to_numpy()
    assert np.array_equal(
        present[1:], (np.searchsorted(arrival_ns, times, "right") - np.searchsorted(ends, times, "right"))[1:]
    )
    timed = result.summary["timed"]
    duration_ns = timed["run"]["duration_ns"]
    assert duration_ns == ends[-1]
    assert present.mean() == pytest.approx(count / duration_ns * timed["e2e_ns"]["mean"], rel=0.03)
    [worker] = timed["workers"]["each"]
    assert worker["utilisation"] == worker["busy_ns"] / duration_ns
    assert worker["utilisation"] == pytest.approx(utilisation, abs=3 * np.sqrt(2 / count))
