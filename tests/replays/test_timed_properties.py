"""Semantics §13 for timed replay, second part: what is left at the end, and what must not matter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from clocked import GB, MS, ONE_GB_PER_S, SECOND, serve, trace
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kvbench.cache.fold import Fold
from kvbench.config import load_config
from kvbench.plugins import load_registry
from kvbench.replays.plan import make_plan
from kvbench.replays.timecolumns import TIME_COLUMNS
from kvbench.replays.timedengine import TimedEngine
from kvbench.trace.reader import open_trace

# The chain that ends in a node of a binary tree: every id brings all its ancestors.
chain = st.integers(1, 2**6).map(lambda leaf: [leaf >> up for up in reversed(range(leaf.bit_length()))])
requests = st.lists(
    st.tuples(chain, st.integers(0, 9), st.integers(0, 40), st.sampled_from([0.0, 0.05, 0.4, 3.0])),
    min_size=1,
    max_size=25,
)
computes = st.sampled_from(
    [f"fixed,prefill_ms_per_token={prefill},decode_ms={decode}" for prefill in (0, 10, 100) for decode in (0, 7, 100)]
)
policies = st.sampled_from(["lru", "fifo", "arc", "s3-fifo", "sieve", "2q", "leaf-lru"])


def table(rows: list[Any], shift: float = 0, rename: int = 1) -> pa.Table:
    at = [shift + sum(gap for *_, gap in rows[:i]) for i in range(len(rows))]
    return trace(
        [[key * rename % 2**64 for key in ids] for ids, *_ in rows],
        at,
        tokens=[10 * len(ids) - lacking for ids, lacking, *_ in rows],
        answers=[answer for _, _, answer, _ in rows],
    )


@st.composite
def setups(draw: Any) -> dict[str, Any]:
    """Workers, a small GPU, tiers behind slow devices with any policy, placement and size of chunks."""
    workers, levels = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    exclusive = levels > 1 and draw(st.booleans())
    ranks = draw(st.sampled_from([1, 1, 2]))
    chunk = draw(st.sampled_from([1, 1, 2]))
    tiers: list[dict[str, Any]] = [{"name": "gpu", "capacity": draw(st.integers(6, 12)), "chunk": chunk}]
    for level in range(1, levels):
        if not exclusive and draw(st.booleans()):
            chunk *= 2
        tier = {"name": f"tier{level}", "capacity": draw(st.integers(4, 40)), "chunk": chunk}
        if draw(st.booleans()):
            tier |= {"device": ONE_GB_PER_S, "sharing": draw(st.sampled_from(["fair", "fifo"]))}
        if workers > 1 and level == levels - 1 and ranks == 1 and draw(st.booleans()):
            tier["scope"] = "cluster"
        tiers.append(tier)
    for tier in tiers:
        tier["capacity"] *= tier["chunk"]
        tier["policy"] = draw(policies)
        if ranks > 1:
            tier["scope"] = "rank"
    worker: dict[str, Any] = {
        "batch_tokens": draw(st.sampled_from([7, 64, 8192])),
        "sequences": draw(st.sampled_from([1, 3, 256])),
        "chunked": draw(st.booleans()),
        "share": draw(st.booleans()),
    }
    if any("device" in tier for tier in tiers):
        worker |= {
            "fetches": draw(st.sampled_from([0, 1, 8])),
            "load": draw(st.sampled_from(["always", "cheaper"])),
            "store": draw(st.sampled_from(["async", "blocking"])),
        }
    return {
        "tiers": tiers,
        "workers": workers,
        "worker": worker,
        "placement": "exclusive" if exclusive else "inclusive",
        "block_bytes": GB // 10,
        "tails": draw(st.sampled_from(["drop", "keep"])),
        **({"tp": ranks} if ranks > 1 else {}),
        **({"router": draw(st.sampled_from(["round-robin", "max-prefix"]))} if workers > 1 else {}),
    }


@settings(max_examples=80, deadline=None)
@given(requests, computes, setups())
def test_at_the_end_nobody_holds_anything_and_the_events_fold_to_what_is_there(
    rows: list[Any], compute: str, setup: dict[str, Any]
) -> None:
    """Every lease is released, in all ranks of all tiers, and no block is under way any more (semantics §7.1, §13)."""
    source = open_trace(table(rows))
    plan = make_plan(load_config(None, {**setup, "compute": compute}), load_registry(autoload=False), source)
    engine = TimedEngine(plan, source, keep_events=True)
    for _ in engine.run():
        pass
    core = engine.core
    assert core.log is not None
    fold = Fold()
    fold.take(core.log.tobytes())
    for level, stores in enumerate(core.stores):
        for number, store in enumerate(stores):
            left = store.references(), store.pinned, store.held_back, store.pending
            assert left == (0, 0, 0, 0)
            store.verify()
            assert set(fold.holdings.get((level, number), {})) == set(store.residents())
    assert all(link.in_flight == 0 for link in core.links)
    assert all(link.moved_bytes * SECOND <= link.busy_ns * link.bandwidth_bytes_per_s for link in core.links)


MOMENTS = {name for name in TIME_COLUMNS if name.endswith("_ns")} - {"queue_ns", "fetch_ns", "prefill_ns"}


@settings(max_examples=30, deadline=None)
@given(requests, computes, setups(), st.sampled_from([0.0, 1.5, 10_000_000.0]), st.integers(0, 2**63 - 1))
def test_another_time_and_other_names_change_nothing(
    rows: list[Any], compute: str, setup: dict[str, Any], shift: float, name: int
) -> None:
    """Of absolute times, only the origin."""
    was = serve(table(rows), compute, **setup)
    now = serve(table(rows, shift, rename=2 * name + 1), compute, **setup)
    assert was.requests is not None
    assert now.requests is not None
    moved = now.requests["arrival_ns"][0].as_py() - was.requests["arrival_ns"][0].as_py()
    for column in was.requests.column_names:
        values = now.requests[column].to_pylist()
        if column in MOMENTS:
            values = [None if value is None else value - moved for value in values]
        assert values == was.requests[column].to_pylist(), column


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("timed")


@settings(max_examples=15, deadline=None)
@given(requests, computes, setups())
def test_the_same_run_gives_the_same_bytes(folder: Path, rows: list[Any], compute: str, setup: dict[str, Any]) -> None:
    """Requests, events and timeline (semantics §11)."""
    files = [folder / name for name in ("requests.parquet", "events.parquet", "timeline.parquet")]
    names = dict(zip(("output", "events", "timeline"), map(str, files), strict=True))
    told = []
    for _ in range(2):
        serve(table(rows), compute, **setup, **names, sample="700ms", force=True)
        told.append([file.read_bytes() for file in files])
    assert told[0] == told[1]


@settings(max_examples=30, deadline=None)
@given(requests, computes, setups())
def test_a_tier_that_takes_nothing_changes_nothing(rows: list[Any], compute: str, setup: dict[str, Any]) -> None:
    """Nor do links that nobody uses."""
    assume(setup["placement"] == "inclusive")
    last = setup["tiers"][-1]
    unused = {"name": "unused", "device": ONE_GB_PER_S, "write": "none", "chunk": last["chunk"]}
    unused["scope"] = last.get("scope", "worker")
    was = serve(table(rows), compute, **setup)
    now = serve(table(rows), compute, **setup | {"tiers": [*setup["tiers"], unused]})
    assert was.requests is not None
    assert now.requests is not None
    # Who evicted half a chunk is not known, and then the slowest tier is named.
    common = [name for name in was.requests.column_names if not name.startswith(("behind_", "evicted_from_"))]
    assert now.requests.select(common).equals(was.requests.select(common))


def test_a_prompt_that_has_to_be_alone_is_not_overtaken_for_ever() -> None:
    """It is longer than the token budget of a step, and others that are not come all the time."""
    rows = [[1], [*range(10, 20)], *([key] for key in range(20, 60))]
    table = trace(rows, [0, 0.5, *(0.6 + 0.9 * k for k in range(40))], answers=[5] * 42)
    result = serve(table, worker="batch_tokens=20,chunked=false")
    assert result.requests is not None
    first = result.requests["prefill_start_ns"].to_pylist()
    assert first == sorted(first)
    assert first[1] <= 3000 * MS
