"""Faults that a plan injects: what degrades, what is counted, and what stays as it was (semantics §6.5)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kvbench
from kvbench.errors import ConfigError
from kvbench.replays.faults import read_faults
from tests.stacks import SECOND_NS, tier

MakeTrace = Callable[..., pa.Table]
CHAT = Path(__file__).parents[2] / "traces" / "chat.arrow"
Faulty = Callable[..., kvbench.ReplayResult]


@pytest.fixture
def faulty(tmp_path: Path) -> Faulty:
    """Replays a trace with the faults of a plan, given as TOML."""

    def run(trace: pa.Table | Path, plan: str, **settings: Any) -> kvbench.ReplayResult:
        path = tmp_path / "faults.toml"
        path.write_text(plan)
        return kvbench.replay(trace, faults=str(path), keep_requests=True, **settings)

    return run


def records(result: kvbench.ReplayResult) -> dict[str, dict[str, Any]]:
    return {record["tier"]: record for record in result.summary["tiers"]}


def column(result: kvbench.ReplayResult, name: str) -> list[Any]:
    assert result.requests is not None
    values = result.requests[name].to_pylist()
    assert isinstance(values, list)
    return values


def at_seconds(make_trace: MakeTrace, rows: list[list[int]]) -> pa.Table:
    """A trace whose requests are a second apart."""
    trace = make_trace(rows)
    times = pa.array([SECOND_NS * at for at in range(len(rows))], pa.int64())
    return trace.set_column(0, trace.schema.field("arrival_ns"), times)


CPU = [tier("cpu", capacity=10)]
TWO = [tier("gpu", capacity=2), tier("cpu", capacity=10)]


# -- gets and puts ---------------------------------------------------------------------------------


def test_a_failing_get_cuts_the_prefix_and_the_block_is_computed_and_stored_again(
    make_trace: MakeTrace, faulty: Faulty, tmp_path: Path
) -> None:
    plan = '[[fault]]\nkind = "get"\ntier = "cpu"\nfrom_request = 1\nto_request = 2'
    events = tmp_path / "events.parquet"
    result = faulty(make_trace([[1, 2, 3]] * 3), plan, tiers=CPU, events=str(events))
    assert column(result, "hit_blocks") == [0, 0, 3]
    assert column(result, "lost_blocks") == [0, 3, 0]
    assert result.summary["misses"]["fault"] == 1  # block 1; 2 and 3 are there, behind the gap
    assert result.summary["misses"]["gap"] == 2
    cpu = records(result)["cpu"]
    assert (cpu["failed_gets"], cpu["lost_blocks"], cpu["dropped_faulty_blocks"]) == (1, 3, 1)
    assert (cpu["retries"], cpu["failed_puts"]) == (0, 0)
    told = pq.read_table(events).slice(3).to_pylist()
    assert [(row["kind"], row["reason"], row["request"]) for row in told] == [
        ("DELETE", "fault", 1),
        ("INSERT", "computed", 1),
    ]


def test_a_failing_get_in_a_lower_tier_keeps_what_the_upper_one_gave(make_trace: MakeTrace, faulty: Faulty) -> None:
    plan = '[[fault]]\nkind = "get"\ntier = "cpu"\nfrom_request = 1'
    result = faulty(make_trace([[1, 2, 3]] * 2), plan, tiers=TWO)
    assert column(result, "hit_blocks") == [0, 2]
    assert [record["lost_blocks"] for record in records(result).values()] == [0, 1]


@pytest.mark.parametrize("retries", [0, 1, 7])
def test_operations_are_tried_again_so_often_and_no_more(make_trace: MakeTrace, faulty: Faulty, retries: int) -> None:
    plan = '[[fault]]\nkind = "get"\ntier = "cpu"\nfrom_request = 1'
    cpu = records(faulty(make_trace([[1, 2]] * 5), plan, tiers=CPU, retries=retries))["cpu"]
    assert (cpu["failed_gets"], cpu["retries"]) == (4, 4 * retries)
    plan = plan.replace("get", "put").replace("from_request = 1", "")
    cpu = records(faulty(make_trace([[1, 2]] * 5), plan, tiers=CPU, retries=retries))["cpu"]
    assert (cpu["failed_puts"], cpu["retries"]) == (10, 10 * retries)


@pytest.mark.parametrize(("retries", "share"), [(0, 0.25), (1, 0.0625), (2, 0.015625)])
def test_an_operation_fails_if_all_its_tries_do(faulty: Faulty, retries: int, share: float) -> None:
    cpu = records(faulty(CHAT, plan_of("put", share=0.25), tiers=[tier("cpu")], retries=retries))["cpu"]
    assert cpu["failed_puts"] / (cpu["failed_puts"] + cpu["computed_blocks"]) == pytest.approx(share, rel=0.15)
    assert cpu["computed_blocks"] == cpu["used_blocks"]


def test_a_failing_put_takes_no_room_and_is_tried_with_the_next_request(make_trace: MakeTrace, faulty: Faulty) -> None:
    plan = '[[fault]]\nkind = "put"\ntier = "cpu"\nto_request = 2'
    result = faulty(make_trace([[1, 2]] * 4), plan, tiers=CPU)
    assert column(result, "hit_blocks") == [0, 0, 0, 2]
    assert result.summary["misses"] | {"fault": 4, "first_seen": 2} == result.summary["misses"]
    cpu = records(result)["cpu"]
    assert (cpu["failed_puts"], cpu["refused_fault_blocks"], cpu["computed_blocks"]) == (4, 4, 2)


def test_a_put_that_fails_below_is_a_hit_above(make_trace: MakeTrace, faulty: Faulty) -> None:
    plan = '[[fault]]\nkind = "put"\ntier = "cpu"'
    result = faulty(make_trace([[1, 2]] * 2), plan, tiers=TWO)
    assert column(result, "hit_gpu_blocks") == [0, 2]
    assert records(result)["cpu"]["used_blocks"] == 0


# -- windows ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "window", ["from_request = 2\nto_request = 4", "from_s = 2\nto_s = 4", "from_s = 1.5\nto_s = 3.5"]
)
def test_an_unhealthy_tier_neither_answers_nor_stores_in_its_window(
    make_trace: MakeTrace, faulty: Faulty, window: str
) -> None:
    rows = [[1], [1], [1], [2], [1], [2], [2]]
    result = faulty(at_seconds(make_trace, rows), f'[[fault]]\nkind = "unhealthy"\ntier = "cpu"\n{window}', tiers=CPU)
    assert column(result, "hit_blocks") == [0, 1, 0, 0, 1, 0, 1]
    assert records(result)["cpu"]["lookup_operations"] == 5


WINDOWS: list[dict[str, float]] = [
    {"from_request": 500, "to_request": 901},
    {"from_s": 600.5, "to_s": 1200.25},
    {"from_s": 600.5},
    {"to_request": 700},
]


@pytest.mark.parametrize("rows_a_batch", [1, 3, 1_000])
@pytest.mark.parametrize("window", WINDOWS)
def test_a_window_begins_and_ends_at_its_request_in_any_batch(
    faulty: Faulty, rows_a_batch: int, window: dict[str, float]
) -> None:
    with pa.memory_map(str(CHAT)) as source:
        table = pa.ipc.open_file(source).read_all()
    cut = pa.Table.from_batches(table.combine_chunks().to_batches(max_chunksize=rows_a_batch))
    plan = plan_of("unhealthy", **window) + "\n" + plan_of("get", share=0.3, **window).replace("cpu", "gpu")
    tiers = [tier("gpu", capacity=60), tier("cpu", capacity=500)]
    whole, found = (faulty(trace, plan, tiers=tiers) for trace in (CHAT, cut))
    assert facts(found) == facts(whole)
    arrivals = np.array(column(whole, "arrival_ns"))
    places = dict.fromkeys(("from", "to"), 0) | {"to": len(arrivals)}
    for name, value in window.items():
        edge, _, unit = name.partition("_")
        places[edge] = int(value) if unit == "request" else int(np.searchsorted(arrivals, value * SECOND_NS))
    assert 0 <= places["from"] < places["to"]
    assert records(whole)["cpu"]["lookup_operations"] == len(arrivals) - (places["to"] - places["from"])


def test_a_fault_of_one_worker_leaves_the_others_alone(make_trace: MakeTrace, faulty: Faulty) -> None:
    plan = '[[fault]]\nkind = "unhealthy"\ntier = "cpu"\nworker = 1'
    result = faulty(make_trace([[1, 2]] * 6), plan, tiers=CPU, workers=2, router="round-robin")
    assert column(result, "worker") == [0, 1] * 3
    assert column(result, "hit_blocks") == [0, 0, 2, 0, 2, 0]


def test_a_fault_of_one_worker_is_one_of_the_store_that_it_shares(make_trace: MakeTrace, faulty: Faulty) -> None:
    plan = '[[fault]]\nkind = "unhealthy"\ntier = "dfs"\nworker = 3'
    tiers = [tier("dfs", capacity=10, scope="host")]
    settings = {"workers": 4, "workers_per_host": 2, "router": "round-robin"}
    result = faulty(make_trace([[1]] * 8), plan, tiers=tiers, **settings)
    assert column(result, "hit_blocks") == [0, 1, 0, 0, 1, 1, 0, 0]


# -- freeze and restart ----------------------------------------------------------------------------


def test_frozen_nothing_is_stored_and_only_the_first_tier_is_read(
    make_trace: MakeTrace, faulty: Faulty, tmp_path: Path
) -> None:
    rows = [[1, 2], [3, 4], [3, 4], [1, 2], [5, 6], [1, 2], [3, 4]]
    plan = '[[fault]]\nkind = "freeze"\nfrom_request = 2\nto_request = 5'
    timeline = tmp_path / "timeline.parquet"
    result = faulty(make_trace(rows), plan, tiers=TWO, timeline=str(timeline), timeline_every=1, block_bytes=1_000)
    assert column(result, "hit_gpu_blocks") == [0, 0, 2, 0, 0, 0, 0]
    assert column(result, "hit_cpu_blocks") == [0, 0, 0, 0, 0, 2, 2]
    assert column(result, "miss_fault_blocks") == [0, 0, 0, 2, 0, 0, 0]  # 1 and 2 are in the CPU, 5 and 6 are new
    samples = pq.read_table(timeline).to_pylist()
    for name in ("gpu", "cpu"):
        mine = [row for row in samples if row["tier"] == name]
        for quiet in ("reusable_blocks", "free_blocks", "pinned_blocks", "written_bytes", "evicted_room_blocks"):
            assert len({row[quiet] for row in mine[1:5]}) == 1, quiet
    assert records(result)["gpu"]["refused_frozen_blocks"] == 4
    assert records(result)["cpu"]["lookup_operations"] == 4


@pytest.mark.parametrize("policy", ["lru", "fifo", "lfu", "arc"])
def test_frozen_the_order_of_eviction_stays_as_it_was(make_trace: MakeTrace, faulty: Faulty, policy: str) -> None:
    """Hits of a frozen worker renew nothing: what was oldest before is evicted first after."""
    rows = [[1], [2], [3], *[[1]] * 4, [4], [1]]
    tiers = [tier("gpu", capacity=3, policy=policy)]
    frozen = faulty(make_trace(rows), '[[fault]]\nkind = "freeze"\nfrom_request = 3\nto_request = 7', tiers=tiers)
    assert column(frozen, "hit_blocks") == [0, 0, 0, 1, 1, 1, 1, 0, 0]


def test_what_a_frozen_worker_computes_is_missed_for_the_fault(make_trace: MakeTrace, faulty: Faulty) -> None:
    plan = '[[fault]]\nkind = "freeze"\nto_request = 1'
    result = faulty(make_trace([[1, 2]] * 3), plan, tiers=TWO)
    assert column(result, "hit_blocks") == [0, 0, 2]
    assert column(result, "miss_fault_blocks") == [0, 2, 0]


@pytest.mark.parametrize("when", ["from_request = 2", "from_s = 1.5", "from_s = 2"])
def test_a_restart_forgets_everything_once(make_trace: MakeTrace, faulty: Faulty, tmp_path: Path, when: str) -> None:
    events = tmp_path / "events.parquet"
    plan = f'[[fault]]\nkind = "restart"\ntier = "cpu"\n{when}'
    trace = at_seconds(make_trace, [[1, 2]] * 5)
    result = faulty(trace, plan, tiers=CPU, events=str(events))
    assert column(result, "hit_blocks") == [0, 2, 0, 2, 2]
    assert column(result, "miss_fault_blocks") == [0, 0, 2, 0, 0]
    told = pq.read_table(events).to_pylist()
    assert [(row["kind"], row["reason"], row["request"]) for row in told] == [
        *[("INSERT", "computed", 0)] * 2,
        ("CLEAR", "restart", 2),
        *[("INSERT", "computed", 2)] * 2,
    ]
    assert [row["sequence"] for row in told] == list(range(5))
    assert records(result)["cpu"]["used_blocks"] == 2


def test_a_restart_of_one_tier_leaves_the_others(make_trace: MakeTrace, faulty: Faulty) -> None:
    plan = '[[fault]]\nkind = "restart"\ntier = "gpu"\nfrom_request = 1'
    result = faulty(make_trace([[1, 2]] * 2), plan, tiers=TWO)
    assert column(result, "hit_cpu_blocks") == [0, 2]
    assert column(result, "hit_gpu_blocks") == [0, 0]


# -- what holds for all ----------------------------------------------------------------------------


KINDS = ["unhealthy", "get", "put", "freeze", "restart"]


def plan_of(kind: str, **values: Any) -> str:
    where = "" if kind == "freeze" else 'tier = "cpu"\n'
    return f'[[fault]]\nkind = "{kind}"\n{where}' + "\n".join(f"{name} = {value}" for name, value in values.items())


def facts(result: kvbench.ReplayResult) -> tuple[dict[str, Any], list[Any]]:
    assert result.requests is not None
    return result.summary, result.requests.to_pylist()


@pytest.mark.parametrize("placement", ["inclusive", "exclusive", "spill"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_that_never_comes_changes_nothing(faulty: Faulty, kind: str, placement: str) -> None:
    tiers = [tier("gpu", capacity=60), tier("cpu", capacity=500)]
    settings: dict[str, Any] = {"tiers": tiers, "placement": placement, "workers": 2}
    healthy = kvbench.replay(CHAT, keep_requests=True, **settings)
    for when in ({"from_request": 1_000_000}, {"from_s": 1e9}):
        assert facts(faulty(CHAT, plan_of(kind, **when), **settings)) == facts(healthy)


def test_the_seed_decides_what_fails(faulty: Faulty) -> None:
    tiers = [tier("gpu", capacity=60), tier("cpu", capacity=500)]
    plan = plan_of("get", share=0.2) + "\n" + plan_of("put", share=0.2)
    first, again, other = (facts(faulty(CHAT, plan, tiers=tiers, seed=seed)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("placement", ["inclusive", "exclusive", "spill"])
def test_hits_and_misses_by_reason_add_up_under_every_fault(faulty: Faulty, kind: str, placement: str) -> None:
    window = {"from_request": 300} if kind == "restart" else {"from_request": 300, "to_request": 900}
    tiers = [tier("gpu", capacity=60), tier("cpu", capacity=500)]
    result = faulty(CHAT, plan_of(kind, **window), tiers=tiers, placement=placement, workers=2)
    blocks, misses = result.summary["blocks"], result.summary["misses"]
    assert blocks["hit"] + sum(count for count in misses.values() if count) == blocks["asked"]
    assert blocks["hit"] == sum(record["hit_blocks"] for record in result.summary["tiers"])
    # What one tier does not take is in the other, and evicted from there.
    assert misses["fault"] > 0 or (kind == "put" and placement != "spill")


# -- plans that are none ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "missing required field `fault`"),
        ("fault = []", "no fault in it"),
        ("fault = 3", "Expected `array`"),
        ("[[fault", "not valid TOML"),
        ("x = " + "9" * 5_000, "not valid TOML"),
        ("x = " + "[" * 100_000, "not valid TOML"),
        ('[[fault]]\nkind = "explode"\ntier = "cpu"', "'explode'"),
        ('[[fault]]\nkind = "get"\ntier = "cpu"\nshar = 1', "unknown field `shar`"),
        ('[[fault]]\nkind = "get"', "fault 1: a freeze names no tier, and every other fault names one"),
        ('[[fault]]\nkind = "freeze"\ntier = "cpu"', "fault 1: a freeze names no tier"),
        ('[[fault]]\nkind = "get"\ntier = "cpus"', "fault 1: no tier is called 'cpus'; did you mean 'cpu'"),
        ('[[fault]]\nkind = "get"\ntier = "cpu"\nworker = 2', "fault 1: worker = 2; workers are 0 to 1"),
        ('[[fault]]\nkind = "get"\ntier = "cpu"\nshare = 0', "fault 1: share = 0 is not above 0 and at most 1"),
        ('[[fault]]\nkind = "get"\ntier = "cpu"\nshare = nan', "fault 1: share = nan"),
        ('[[fault]]\nkind = "freeze"\nshare = 0.5', "fault 1: share has no effect on kind freeze"),
        ('[[fault]]\nkind = "restart"\ntier = "cpu"', "fault 1: a restart happens at from_request or from_s"),
        ('[[fault]]\nkind = "freeze"\nfrom_request = 1\nto_s = 5', "fault 1: give requests or seconds, not both"),
        ('[[fault]]\nkind = "freeze"\nfrom_request = 5\nto_request = 5', "fault 1: it ends before it begins"),
        ('[[fault]]\nkind = "freeze"\nfrom_request = -1', "fault 1: it ends before it begins"),
        ('[[fault]]\nkind = "freeze"\n[[fault]]\nkind = "freeze"\nfrom_s = -1', "fault 2: from_s = -1 must be from 0"),
        ('[[fault]]\nkind = "freeze"\nto_s = inf', "fault 1: to_s = inf must be from 0 to 9e+09"),
        ('[[fault]]\nkind = "freeze"\nto_s = nan', "fault 1: to_s = nan must be from 0"),
        ('[[fault]]\nkind = "freeze"\nfrom_s = 1e300', "fault 1: from_s = 1e+300 must be from 0"),
    ],
)
def test_a_wrong_plan_is_refused_with_file_and_fault(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "faults.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_faults(path, ["gpu", "cpu"], 2)
    assert str(caught.value).startswith(f"{path}: ")
    assert says in str(caught.value)


def test_a_plan_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path, says in ((tmp_path / "none.toml", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(ConfigError, match=rf"^{path}: cannot be read: {says}"):
            read_faults(path, ["cpu"], 1)
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=rf"^{binary}: not valid TOML: "):
        read_faults(binary, ["cpu"], 1)


@pytest.mark.parametrize("kind", ["unhealthy", "freeze"])
def test_retries_of_operations_that_never_fail_are_refused(make_trace: MakeTrace, faulty: Faulty, kind: str) -> None:
    with pytest.raises(ConfigError, match=r"^--retries has no effect: no get or put fails in .*faults\.toml$"):
        faulty(make_trace([[1]]), plan_of(kind), tiers=CPU, retries=1)


@pytest.mark.parametrize("retries", [-1, 1_001])
def test_retries_out_of_range_are_refused(make_trace: MakeTrace, faulty: Faulty, retries: int) -> None:
    with pytest.raises(ConfigError, match=rf"^--retries = {retries} must be from 0 to 1,000$"):
        faulty(make_trace([[1]]), plan_of("get"), tiers=CPU, retries=retries)


def test_the_index_hears_of_a_restart(tmp_path: Path) -> None:
    """What a restarted worker has forgotten the router does not promise any more."""
    plan = tmp_path / "faults.toml"
    plan.write_text('[[fault]]\nkind = "restart"\ntier = "gpu"\nworker = 1\nfrom_request = 900\n')
    tiers = [{"name": "gpu", "capacity": 400}]
    result = kvbench.replay(
        "traces/chat.arrow", workers=2, router="round-robin", tiers=tiers, faults=str(plan), keep_requests=True
    )
    assert result.requests is not None
    assert result.requests["predicted_blocks"].to_pylist() == result.requests["hit_blocks"].to_pylist()
