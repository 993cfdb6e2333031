"""What the predecessor's router signals, worker and traces do on the clock, row by row, and never its defects.

Rows OP-41 to OP-48, OP-60 to OP-70, BUG-09, BUG-12 and BUG-17. OP-42 and OP-43 in order replay are in
tests/routing/test_channel.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from clocked import (
    BLOCK_TOKENS,
    GB,
    INSTANT,
    MS,
    ONE_GB_PER_S,
    SECOND,
    STEADY,
    column,
    samples,
    seconds,
    serve,
    trace,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import kvbench
import kvbench.replays
from kvbench.plugins import Distribution, load_registry
from kvbench.routers import Router
from kvbench.routing import RouterContext, RouteRequest
from kvbench.specs import RouterPolicySpec

CHAT = Path(__file__).parents[2] / "traces" / "chat.arrow"
TEN_A_SECOND = "fixed,prefill_ms_per_token=1,decode_ms=20"


# -- what routers hear -----------------------------------------------------------------------------


def watched(table: pa.Table, **settings: Any) -> tuple[kvbench.ReplayResult, list[dict[str, list[int]]]]:
    """A replay on two workers in turn, and the load that the router saw before each request."""
    seen: list[dict[str, list[int]]] = []

    class Watching(Router):
        def __init__(self, context: RouterContext) -> None:
            super().__init__(context)

        def choose(self, request: RouteRequest) -> int:
            load = self.known
            names = ("requests", "prefilling", "waiting", "running")
            seen.append({name: [int(each) for each in getattr(load, name)] for name in names})
            return request.number % 2

    registry = load_registry(autoload=False)
    registry.add(RouterPolicySpec("watching", Watching, "in turn", source="test"), Distribution("test"))
    result = kvbench.replay(
        table, compute=STEADY, workers=2, router="watching", registry=registry, keep_requests=True, **settings
    )
    return result, seen


@pytest.mark.parametrize("period", [0, 2])
def test_OP_41_the_load_that_is_reported_is_the_true_one_of_its_time(period: int) -> None:
    """At once, or as it was when the period began."""
    count = 40
    table = trace(
        [[i] for i in range(count)], [i * 0.3 for i in range(count)], answers=[1 + i % 5 * 4 for i in range(count)]
    )
    load = {"load": f"period={period}s"} if period else {}
    result, seen = watched(table, worker="sequences=2", **load)
    arrival, first, end = (column(result, name) for name in ("arrival_ns", "first_token_ns", "end_ns"))
    for number in range(count):
        now = arrival[number]
        heard = now // (period * SECOND) * period * SECOND - 1 if period else now
        before = [k for k in range(number) if arrival[k] <= heard]
        here = [[k for k in before if k % 2 == worker and end[k] > heard] for worker in range(2)]
        waiting = [sum(first[k] > heard for k in there) for there in here]
        running = [len(there) - some for there, some in zip(here, waiting, strict=True)]
        assert (seen[number]["waiting"], seen[number]["running"]) == (waiting, running), number
        if not period:
            assert seen[number]["requests"] == [len(there) for there in here]


def test_OP_42_an_index_that_hears_late_is_told_from_one_that_knows() -> None:
    """Delay 0 gives what the oracle gives; collecting for half a minute costs hits, and the result says so."""
    run: dict[str, Any] = {"workers": 4, "capacity": 2_000, "stop": "rows=600"}
    oracle = serve(CHAT, TEN_A_SECOND, index="oracle", **run)
    at_once = serve(CHAT, TEN_A_SECOND, event_channel="coalesce=0,delay=0", **run)
    assert at_once.summary == oracle.summary
    late = serve(CHAT, TEN_A_SECOND, event_channel="coalesce=30s", **run)
    assert late.rates["token"] < oracle.rates["token"]  # type: ignore[operator]
    routing = late.summary["routing"]
    assert routing["best_tokens"] > routing["predicted_tokens"]
    assert routing["routed_away_tokens"] > oracle.summary["routing"]["routed_away_tokens"]


def test_OP_43_a_router_reads_a_batch_of_events_a_cycle() -> None:
    table = trace([[*range(1_000)], *([5_000 + i] for i in range(40))], [0, *(1 + i for i in range(40))])
    result = serve(table, INSTANT, workers=2, router="round-robin", event_channel="batch=64,cycle=1s")
    index = result.summary["routing"]["index"]
    assert index["events_applied"] + index["under_way"] == 1_040
    assert index["cycles"] >= 16


def test_OP_48_the_recent_latency_of_a_worker_is_null_until_there_are_enough_requests(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    table = trace([[i] for i in range(70)], list(range(70)))
    serve(table, "fixed,prefill_ms_per_token=1,decode_ms=1", timeline=str(path), sample="500ms")
    recent = {row["time_ns"]: row["recent_ttft_p95_ns"] for row in samples(path, "worker")}
    assert recent[48 * SECOND + 500 * MS] is None
    assert recent[49 * SECOND + 500 * MS] == recent[69 * SECOND] == 10 * MS


# -- the worker ------------------------------------------------------------------------------------


def test_OP_60_order_replay_calls_no_scheduler() -> None:
    folder = Path(kvbench.replays.__file__).parent
    for name in ("order", "tiered", "stack"):
        for suffix in ("pyx", "pxd"):
            assert "kvbench.serving" not in (folder / f"{name}.{suffix}").read_text()


@pytest.mark.parametrize(
    ("limits", "ttft"),
    [
        ({}, [4, 4, 4, 4]),
        ({"worker": "sequences=2"}, [2, 2, 4, 4]),
        ({"worker": "batch_tokens=20"}, [2, 2, 4, 4]),
        ({"worker": "batch_tokens=15"}, [1.5, 3, 3, 4]),
        ({"worker": "batch_tokens=15,chunked=false"}, [1, 2, 3, 4]),
        ({"capacity": 3}, [3, 3, 3, 4]),
    ],
)
def test_OP_62_each_limit_of_a_step_binds(limits: dict[str, Any], ttft: list[float]) -> None:
    """Four prompts of 10 tokens, a second each."""
    assert seconds(serve(trace([[i] for i in range(4)], [0] * 4), **limits), "ttft_ns") == ttft


def test_OP_62_a_step_of_another_batch_costs_what_a_rebuild_costs() -> None:
    """Ten steps of 100 ms; the first and the second are of another batch than the one before."""
    free = serve(trace([[1]], [0], answers=[11]))
    dear = serve(trace([[1]], [0], answers=[11]), worker="rebuild=1s")
    assert seconds(free, "e2e_ns") == [2]
    assert dear.summary["timed"]["workers"]["each"][0]["rebuilds"] == 2
    assert seconds(dear, "e2e_ns") == [4]
    slow = serve(trace([[1]], [0], answers=[11]), worker="step_overhead=1s")
    assert seconds(slow, "e2e_ns") == [13]


@pytest.mark.parametrize(("fetches", "starts"), [(0, [0, 0, 0, 0]), (1, [0, 1, 2, 3]), (3, [0, 0, 0, 3])])
def test_OP_63_only_so_many_requests_fetch_at_once(fetches: int, starts: list[int]) -> None:
    """Each reads 1 GB of a link of 1 GB/s, of which they get equal shares."""
    ids = [[i] for i in range(4)]
    table = trace([*ids, *([10 + i] for i in range(4)), *ids], [0] * 4 + [50] * 4 + [100] * 4)
    tiers = [{"name": "gpu", "capacity": 4}, {"name": "cpu", "device": ONE_GB_PER_S}]
    result = serve(table, INSTANT, tiers=tiers, block_bytes=GB, worker=f"fetches={fetches}")
    assert column(result, "hit_cpu_blocks")[8:] == [1] * 4
    assert column(result, "fetch_start_ns")[8:] == [(100 + second) * SECOND for second in starts]


def test_OP_63_a_request_that_waits_for_all_of_the_memory_gets_it() -> None:
    """It needs every block, while small ones come and go, fetch and hold some."""
    rows = [[i] for i in range(4)]
    table = trace(
        [*rows, [*range(20, 28)], *rows, [*range(40, 48)], *rows], [0] * 4 + [10] + [10] * 4 + [10] + [10] * 4
    )
    tiers = [{"name": "gpu", "capacity": 8}, {"name": "cpu", "device": ONE_GB_PER_S}]
    result = serve(table, tiers=tiers, block_bytes=GB // 10, worker="fetches=1")
    assert set(column(result, "status")) == {"done"}
    assert result.summary["timed"]["run"]["stop"] == "all requests done"


def test_OP_64_what_was_looked_up_is_kept_until_it_is_fetched() -> None:
    """While two blocks are read for two seconds, the GPU evicts four to a tier that these two fill."""
    tiers = [{"name": "gpu", "capacity": 4}, {"name": "cpu", "capacity": 2, "write": "back", "device": ONE_GB_PER_S}]
    table = trace([[1, 2], [3, 4, 5, 6], [1, 2], [7, 8], [1, 2]], [0, 10, 100, 100.5, 200])
    result = serve(table, INSTANT, tiers=tiers, block_bytes=GB)
    assert column(result, "hit_cpu_blocks") == [0, 0, 2, 0, 0]
    assert column(result, "hit_gpu_blocks") == [0, 0, 0, 0, 2]
    assert seconds(result, "fetch_ns")[2] == 2
    assert column(result, "lost_blocks") == [0] * 5


@pytest.mark.parametrize(("longer", "again"), [(21, 1), (25, 0)])
def test_OP_65_after_a_preemption_what_is_there_is_looked_up_again(longer: int, again: int) -> None:
    """Two requests of a block grow, and the later one gives way; the other one grows on over its block, or not."""
    result = serve(trace([[1], [2]], [0, 0], answers=[longer, 25]), capacity=4)
    assert column(result, "preemptions") == [0, 1]
    assert column(result, "readmitted_blocks") == [0, again]
    assert column(result, "hit_blocks") == [0, 0]
    assert column(result, "generated_tokens") == [longer, 25]
    # Ten tokens of the prompt and eleven of the answer, but for the block that is still there.
    assert column(result, "computed_tokens") == [10, 10 + 21 - 10 * again]
    assert result.summary["timed"]["work"]["readmitted_blocks"] == again


def test_OP_66_the_latest_request_gives_way_and_the_rule_is_in_the_result() -> None:
    """Three requests fill six blocks; the first that needs a seventh takes those of the last one."""
    table = trace([[1], [2], [3]], [0, 0.1, 0.2], answers=[20, 14, 14])
    result = serve(table, "fixed,prefill_ms_per_token=1,decode_ms=100", capacity=6)
    assert column(result, "preemptions") == [0, 0, 1]
    assert result.manifest["config"]["worker"]["preempt"] == "latest"
    assert column(result, "generated_tokens") == [20, 14, 14]
    assert column(result, "admitted_ns") == sorted(column(result, "admitted_ns"))
    computed, first = column(result, "computed_tokens"), seconds(result, "ttft_ns")
    assert computed[:2] == [10, 10]
    assert computed[2] > 10
    assert first[2] == pytest.approx(0.13)  # the tokens that it had stay with it


def test_OP_67_two_prefills_of_one_step_take_longer_than_one() -> None:
    one = serve(trace([[1]], [0]))
    two = serve(trace([[1], [2]], [0, 0]))
    assert two.summary["timed"]["workers"]["each"][0]["steps"] == 1
    assert seconds(two, "ttft_ns") == [2, 2]
    assert seconds(one, "ttft_ns") == [1]


def test_OP_68_a_full_hit_computes_a_token() -> None:
    result = serve(trace([[1, 2]] * 2, [0, 100]))
    assert column(result, "hit_tokens") == [0, 20]
    assert column(result, "computed_tokens") == [20, 1]


def test_OP_69_a_slow_tier_delays_no_step_unless_requests_wait_for_it() -> None:
    """Writes take five seconds. Waiting for them holds the blocks as long, and the next request back."""
    table = trace([[1], [2]], [0, 0], answers=[1, 1])
    alone = serve(table, capacity=1)
    tiers = [{"name": "gpu", "capacity": 1}, {"name": "cpu", "device": ONE_GB_PER_S}]
    free = serve(table, tiers=tiers, block_bytes=5 * GB)
    held = serve(table, tiers=tiers, block_bytes=5 * GB, worker="store=blocking")
    for name in ("ttft_ns", "end_ns"):
        assert column(free, name) == column(alone, name)
    assert seconds(held, "end_ns") == [6, 12]
    assert seconds(held, "ttft_ns") == [1, 7]


prompts = st.lists(st.tuples(st.integers(1, 35), st.integers(1, 30)), min_size=1, max_size=6)


@settings(max_examples=30, deadline=None)
@given(prompts)
def test_OP_70_blocks_that_are_held_are_those_of_all_tokens_after_every_step(
    tmp_path_factory: pytest.TempPathFactory, requests: list[tuple[int, int]]
) -> None:
    """All arrive at once, and then get a token every 100 ms; it is looked in the middle of each step."""
    path = tmp_path_factory.mktemp("held") / "t.parquet"
    rows = [[100 * i + k for k in range(-(-tokens // BLOCK_TOKENS))] for i, (tokens, _) in enumerate(requests)]
    table = trace(
        rows,
        [0] * len(rows),
        tokens=[tokens for tokens, _ in requests],
        answers=[answer for _, answer in requests],
    )
    compute = "fixed,prefill_ms_per_token=0,decode_ms=100"
    result = serve(table, compute, capacity=1_000, timeline=str(path), sample="50ms")
    first = column(result, "first_token_ns")
    assert set(first) <= {0, 100 * MS}
    for row in samples(path, "store"):
        held = 0
        for (tokens, answer), began in zip(requests, first, strict=True):
            steps = (row["time_ns"] - began) // (100 * MS)
            if 0 <= steps < answer - 1:
                held += -(-(tokens + 1 + steps) // BLOCK_TOKENS)
        if row["time_ns"] >= 100 * MS:
            assert row["pinned_blocks"] + row["private_blocks"] == held


# -- defects ---------------------------------------------------------------------------------------


def test_BUG_09_two_runs_with_jitter_are_one_and_another_seed_is_another() -> None:
    def run(seed: int) -> list[Any]:
        result = serve(CHAT, TEN_A_SECOND, arrivals="trace,jitter=3s", seed=seed, stop="rows=200", capacity=500)
        assert result.requests is not None
        return [result.requests.to_pydict(), result.summary]

    assert run(7) == run(7)
    assert run(7) != run(8)


def test_BUG_12_gaps_that_are_stretched_change_no_latency_at_low_load() -> None:
    rows = [[i % 5, 10 + i % 3] for i in range(20)]
    near = serve(trace(rows, [10 * i for i in range(20)], answers=[5] * 20), capacity=8)
    far = serve(trace(rows, [3_600 * i for i in range(20)], answers=[5] * 20), capacity=8)
    for name in ("queue_ns", "fetch_ns", "prefill_ns", "ttft_ns", "e2e_ns", "hit_blocks"):
        assert column(near, name) == column(far, name)
    assert set(column(near, "queue_ns")) == {0}


def test_BUG_17_nothing_of_a_timed_run_outlives_it() -> None:
    """Two runs in this process, and one in another: a shared tier is empty again, and the clock at 0."""
    options = {
        "compute": TEN_A_SECOND,
        "workers": "2",
        "stop": "rows=300",
        "block-bytes": "1MB",
        "worker": "fetches=2",
    }
    tiers = ["gpu,capacity=100", "dfs,capacity=9000,scope=cluster,device=opal-dfs"]
    first, second = (
        kvbench.replay(
            CHAT,
            registry=load_registry(autoload=False),
            compute=TEN_A_SECOND,
            workers=2,
            stop="rows=300",
            block_bytes="1MB",
            worker="fetches=2",
            tiers=tiers,
        )
        for _ in range(2)
    )
    assert first.summary == second.summary
    typed = [part for name, value in options.items() for part in (f"--{name}", value)]
    typed += [part for tier in tiers for part in ("--tier", tier)]
    command = [sys.executable, "-m", "kvbench", "replay", str(CHAT), *typed, "--json"]
    other = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert other["summary"] == json.loads(json.dumps(second.summary))
