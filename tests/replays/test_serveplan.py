"""The timed part of a plan, and the links that it lays out."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kvbench.cli.replay import effective_config
from kvbench.config import load_config
from kvbench.errors import ConfigError
from kvbench.plugins import load_registry
from kvbench.replays.linklayout import link_layout
from kvbench.replays.plan import Plan, make_plan
from kvbench.replays.serveplan import DEFAULT_BLOCK_TOKENS, ServePlan
from kvbench.trace.reader import open_trace

MakeTrace = Callable[..., pa.Table]
CHAT = Path(__file__).parents[2] / "traces" / "chat.arrow"
FIXED = "fixed,prefill_ms_per_token=1,decode_ms=1"
TEN = "cpu,device=cpu-pcie5,device.read_gb_per_s=10,device.write_gb_per_s=5,device.read_latency_us=3"


def planned(table: pa.Table, **settings: Any) -> Plan:
    config = load_config(None, {"compute": FIXED, **settings})
    return make_plan(
        config.cells()[0], load_registry(autoload=False), open_trace(table, block_tokens=config.block_tokens)
    )


def serving(table: pa.Table, **settings: Any) -> ServePlan:
    found = planned(table, **settings).serving
    assert found is not None
    return found


@pytest.fixture
def trace(make_trace: MakeTrace) -> pa.Table:
    return make_trace([[1], [1, 2], [3]])


@pytest.fixture
def lengths(trace: pa.Table) -> pa.Table:
    """The same without ids and block size."""
    return trace.drop_columns(["block_ids"]).replace_schema_metadata(None)


def test_the_memory_of_a_gpu_is_a_stack_of_one_tier(trace: pa.Table) -> None:
    plan = planned(trace, capacity=2, policy="fifo")
    assert plan.tiers is not None
    assert [(tier.name, tier.capacity_chunks, tier.policy and tier.policy.spec.name) for tier in plan.tiers] == [
        ("gpu", 2, "fifo")
    ]


def test_the_printed_configuration_of_a_timed_replay_says_the_same_again(tmp_path: Path) -> None:
    config = load_config(
        None,
        {
            "trace": str(CHAT),
            "compute": FIXED,
            "tiers": ["gpu,capacity=1k", TEN + ",path=nic,transfer=serial"],
            "links": ["nic,read_gb_per_s=25,sharing=fifo"],
            "block_bytes": "2MiB",
            "arrivals": "session,rate=2",
            "worker": "load=cheaper,rebuild=1ms",
            "slo": "ttft=1s",
            "window": "warmup=10%",
            "seeds": 3,
        },
    )
    registry = load_registry(autoload=False)
    printed = effective_config(config, registry)
    (tmp_path / "run.toml").write_text(printed)
    again = load_config(tmp_path / "run.toml", {})
    assert effective_config(again, registry) == printed
    alone = effective_config(load_config(None, {"trace": str(CHAT), "compute": FIXED, "capacity": "10%"}), registry)
    assert tomllib.loads(alone)["tiers"][0].items() >= {"name": "gpu", "capacity": "10%"}.items()


def test_a14_a_trace_without_ids_has_memory_in_blocks_of_a_stated_size(lengths: pa.Table) -> None:
    plan = planned(lengths, capacity="320tok")
    assert plan.tiers is not None
    assert plan.tiers[0].capacity_chunks == 320 // DEFAULT_BLOCK_TOKENS
    assert plan.serving is not None
    assert plan.serving.block_tokens == DEFAULT_BLOCK_TOKENS
    assert plan.serving.notes[0] == "no ids: nothing hits; GPU memory is counted in blocks of 16 tokens"
    assert plan.to_dict(None)["block_tokens"] == DEFAULT_BLOCK_TOKENS
    assert serving(lengths, block_tokens=64).block_tokens == 64


def test_without_output_tokens_the_manifest_says_that_each_request_generates_one(trace: pa.Table) -> None:
    said = "no output_tokens: each request generates one token"
    assert serving(trace).notes == (said,)
    assert serving(trace.append_column("output_tokens", pa.array([1, 2, 3], pa.uint32()))).notes == ()


def test_a_share_of_warm_up_is_of_the_rows_that_are_replayed(trace: pa.Table) -> None:
    assert serving(trace, window="warmup=67%").window.warmup_rows == 2
    assert serving(trace, window="warmup=50%", stop="rows=2").window.warmup_rows == 1


def test_samples_are_taken_each_second_where_a_timeline_is_written(trace: pa.Table) -> None:
    assert serving(trace).sample_ns == 0
    assert serving(trace, timeline="t.parquet").sample_ns == 10**9
    assert serving(trace, timeline="t.parquet", sample="20ms").sample_ns == 20_000_000


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"arrivals": "session"}, "needs session_id"),
        ({"tiers": ["gpu", TEN]}, "tier cpu: its transfers take time, by the size of a block: give --block-bytes"),
        ({"capacity": 2, "policy": "belady"}, "looks ahead"),
        ({"compute": "fixd"}, "did you mean 'fixed'"),
        ({"compute": "fixed"}, "prefill_ms_per_token"),
    ],
)
def test_what_does_not_fit_the_trace_is_refused(trace: pa.Table, settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        planned(trace, **settings)
    assert says in str(caught.value)


def test_tiers_of_a_trace_without_ids_are_refused(lengths: pa.Table) -> None:
    with pytest.raises(ConfigError, match="tiers below gpu have no effect"):
        planned(lengths, tiers=["gpu", "cpu"])
    with pytest.raises(ConfigError, match="--policy has no effect"):
        planned(lengths, capacity=10, policy="fifo")


def test_a_trace_that_can_be_read_once_has_one_seed_and_no_share(trace: pa.Table) -> None:
    for settings, says in (({"seeds": 2}, "can be read only once"), ({"window": "warmup=10%"}, "how many rows")):
        with pytest.raises(ConfigError, match=says):
            planned(trace.to_reader(), **settings)


def test_each_store_has_a_link_a_direction_and_shared_links_are_one(trace: pa.Table) -> None:
    plan = planned(
        trace,
        workers=3,
        tiers=["gpu", TEN + ",path=nic,sharing=fifo,transfer=serial", "dfs,scope=cluster,path=nic"],
        links=["nic,read_gb_per_s=1,read_latency_us=7,scope=host"],
        workers_per_host=2,
        block_bytes=1000,
    )
    layout = link_layout(plan, 3)
    gpu, cpu, dfs = layout.tiers
    assert (gpu.reads, gpu.chunk_bytes) == (((), (), ()), 0)
    names = [[(layout.links[at].name, layout.links[at].store) for at in path] for path in cpu.reads]
    assert names == [[("cpu", 0), ("nic", 0)], [("cpu", 1), ("nic", 0)], [("cpu", 2), ("nic", 1)]]
    assert [[layout.links[at].name for at in path] for path in cpu.writes] == [["nic", "cpu"]] * 3
    assert dfs.reads == tuple(path[1:] for path in cpu.reads)
    assert (cpu.serial, cpu.chunk_bytes, dfs.serial) == (True, 1000, False)
    read, write = (layout.links[path[0]] for path in (cpu.reads[0], tuple(reversed(cpu.writes[0]))))
    assert (read.direction, read.bandwidth_bytes_per_s, read.latency_ns) == ("read", 10 * 10**9, 3_000)
    assert (write.direction, write.bandwidth_bytes_per_s, write.sharing) == ("write", 5 * 10**9, "fifo")
    nic = layout.links[cpu.writes[0][0]]
    assert (nic.direction, nic.bandwidth_bytes_per_s, nic.latency_ns, nic.sharing) == ("write", 10**9, 7_000, "fair")


def test_ranks_with_devices_of_their_own_are_one_device_as_many_times_as_fast(trace: pa.Table) -> None:
    tiers = ["gpu,scope=rank", TEN + ",scope=rank"]
    layout = link_layout(planned(trace, tiers=tiers, tp=4, block_bytes=1000), 1)
    (path,) = layout.tiers[1].reads
    assert layout.links[path[0]].bandwidth_bytes_per_s == 4 * 10 * 10**9
    assert layout.tiers[1].chunk_bytes == 4 * 1000


def test_a_tier_without_device_and_path_moves_in_no_time(trace: pa.Table) -> None:
    layout = link_layout(planned(trace, tiers=["gpu", "cpu"]), 1)
    assert layout.links == ()
    assert layout.tiers[1].reads == layout.tiers[1].writes == ((),)
