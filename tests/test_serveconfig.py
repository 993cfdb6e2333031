"""Settings of timed replay as options and as tables: what they become, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from kvbench.config import RunConfig, load_config
from kvbench.errors import ConfigError
from kvbench.serveconfig import (
    ArrivalsConfig,
    LinkConfig,
    SloConfig,
    StopConfig,
    WindowConfig,
    WorkerConfig,
    parse_warmup,
    time_ns,
)

FIXED = "fixed,prefill_ms_per_token=1,decode_ms=1"
NIC = "nic,read_gb_per_s=25"
CPU = "cpu,device=cpu-pcie5,path=nic"


def timed(**settings: Any) -> RunConfig:
    return load_config(None, {"compute": FIXED, **settings})


# -- options and tables ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "table"),
    [
        (
            "worker",
            "batch_tokens=2048, chunked=false,share=true,rebuild=1ms,decode=false",
            WorkerConfig(batch_tokens=2048, chunked=False, share=True, rebuild="1ms", decode=False),
        ),
        ("arrivals", "session,rate=2,think=5s", ArrivalsConfig(mode="session", rate=2.0, think="5s")),
        ("arrivals", "jitter=3s", ArrivalsConfig(jitter="3s")),
        ("slo", "ttft=500ms,tpot=50ms", SloConfig(ttft="500ms", tpot="50ms")),
        ("stop", "time=10min,rows=1000,converged=0.05", StopConfig(time="10min", rows=1000, converged=0.05)),
        ("window", "warmup=10%,end=1h", WindowConfig(warmup="10%", end="1h")),
    ],
)
def test_an_option_says_the_same_as_a_table(name: str, text: str, table: Any) -> None:
    assert getattr(timed(**{name: text}), name) == table == getattr(timed(**{name: table}), name)


def test_links_are_typed_as_tiers_are() -> None:
    config = timed(
        links=["nic,read_gb_per_s=25,sharing=fifo", NIC.replace("nic", "pcie")], tiers=["gpu", CPU + "+pcie"]
    )
    assert config.links == [
        LinkConfig(name="nic", read_gb_per_s=25.0, sharing="fifo"),
        LinkConfig(name="pcie", read_gb_per_s=25.0),
    ]
    assert config.tiers is not None
    assert config.tiers[1].path == ["nic", "pcie"]


def test_a_configuration_is_made_again_from_what_it_says() -> None:
    config = timed(
        worker="load=cheaper,step_overhead=2us",
        arrivals="session,think=5s",
        slo="ttft=1s",
        window="warmup=100",
        links=[NIC],
        tiers=["gpu,capacity=10", CPU],
        seeds=3,
    )
    assert load_config(None, config.to_dict()) == config


def test_op_62_and_op_63_limits_have_the_defaults_of_engines() -> None:
    worker = WorkerConfig()
    assert (worker.sequences, worker.batch_tokens, worker.fetches) == (256, 8192, 8)
    assert time_ns(worker.rebuild, "") == 0


def test_times_are_exact_nanoseconds() -> None:
    assert time_ns("1.5s", "") == 1_500_000_000
    assert time_ns("0.1us", "") == 100
    assert time_ns(None, "") is None


def test_a_warm_up_is_rows_a_time_or_a_share() -> None:
    assert parse_warmup(1000).rows == parse_warmup("1k").rows == 1000
    assert parse_warmup("60s").ns == 60_000_000_000
    assert parse_warmup("10%").share * 10 == 1


def test_one_cache_a_worker_becomes_the_stack_of_a_timed_replay() -> None:
    stack = timed(capacity="10k", policy="fifo").as_stack()
    assert stack.tiers is not None
    assert [(tier.name, tier.capacity, tier.policy) for tier in stack.tiers] == [("gpu", "10k", "fifo")]
    assert stack.check().capacity == "infinite"


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"worker": "share=true"},
        {"arrivals": "rate=2"},
        {"slo": "ttft=1s"},
        {"stop": "rows=5"},
        {"window": "warmup=5"},
        {"links": [NIC]},
        {"seeds": 2},
        {"sample": "1s", "timeline": "t.parquet"},
        {"tiers": ["gpu", "cpu,path=nic"]},
        {"tiers": ["gpu", "cpu,device=cpu-pcie5,sharing=fifo"]},
        {"tiers": ["gpu", "cpu,transfer=serial"]},
    ],
)
def test_what_goes_with_a_clock_has_no_effect_without_one(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="no effect without --compute"):
        load_config(None, settings)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"order": "access", "capacity": 10}, "--order access has no effect with --compute"),
        ({"belady": "on", "capacity": 10}, "--belady on has no effect with --compute"),
        ({"capacity": "1k,2k"}, "one capacity, one policy and one router"),
        ({"router": ["random", "round-robin"], "workers": 2}, "one capacity, one policy and one router"),
        ({"timeline": "t.parquet", "timeline_every": 5}, "give --sample"),
        ({"tiers": []}, "--compute needs a tier"),
        ({"policy": "fifo"}, "--policy has no effect with infinite capacity"),
        ({"walk": "once"}, "--walk has no effect with one tier"),
        ({"retries": 3}, "--retries has no effect without --faults"),
        ({"seeds": 0}, "--seeds = 0 must be from 1"),
        ({"sample": "1s"}, "--sample has no effect without --timeline"),
        ({"sample": "0s", "timeline": "t.parquet"}, "--sample = 0s must be above 0"),
        ({"slo": "ttft=500"}, "--slo: ttft: 500 is no time: its unit is missing; write for example 500ms or 500s"),
        ({"slo": {"ttft": 0.5}}, "--slo: ttft: 0.5 is no time: its unit is missing"),
        ({"slo": "ttft=0ms"}, "--slo: ttft = 0ms must be above 0"),
        ({"slo": "ttft=5parsec"}, "'5parsec' is not a time"),
        ({"slo": "ttfb=5s"}, "unknown key 'ttfb'; did you mean 'ttft'"),
        ({"slo": {}}, "--slo names no limit"),
        ({"slo": "tpot=5ms", "worker": "decode=false"}, "tpot has no effect"),
        ({"worker": "batch_tokens=0"}, "--worker: batch_tokens = 0 must be from 1"),
        ({"worker": "rebuild=1e18h"}, "--worker: rebuild = 1e18h is out of range"),
        ({"worker": "load=cheapest"}, "did you mean 'cheaper'"),
        ({"worker": "load=cheaper"}, "--worker: load has no effect where no transfer takes time"),
        ({"worker": "store=blocking", "tiers": ["gpu", "cpu"]}, "--worker: store has no effect"),
        ({"worker": "fetches=4"}, "--worker: fetches has no effect with one tier"),
        ({"arrivals": "sesion"}, "did you mean 'session'"),
        ({"arrivals": "rate=0"}, "--arrivals: rate = 0 must be from 1e-06"),
        ({"arrivals": "rate=nan"}, "--arrivals: rate = nan"),
        ({"arrivals": "think=5s"}, "think has no effect; it goes with mode session"),
        ({"arrivals": "concurrency=5"}, "concurrency has no effect; it goes with mode concurrency"),
        ({"arrivals": "concurrency"}, "say how many"),
        ({"arrivals": "concurrency,concurrency=0"}, "concurrency = 0 must be from 1"),
        ({"arrivals": "concurrency,concurrency=4,jitter=1s"}, "rate and jitter have no effect"),
        ({"stop": "rows=0"}, "--stop: rows = 0 must be from 1"),
        ({"stop": "converged=1"}, "--stop: converged = 1 must be a share above 0 and below 1"),
        ({"stop": "stall_steps=0"}, "stall_steps = 0"),
        ({"window": "warmup=100%"}, "leaves nothing over"),
        ({"window": "warmup=5GiB"}, "unit 'GiB'"),
        ({"window": "start=5s,end=5s"}, "end = 5s is not after start = 5s"),
        ({"window": "warmup=100", "stop": "rows=100"}, "leaves nothing over of --stop rows=100"),
        ({"window": "start=1min", "stop": "time=60s"}, "begins when the run has ended"),
        ({"links": [NIC]}, "link nic has no effect: it is in no tier's path"),
        ({"links": ["nic,read_gb_per_s=0"], "tiers": ["gpu", CPU]}, "link nic: read_gb_per_s = 0 must be from 1e-09"),
        ({"links": ["nic"], "tiers": ["gpu", CPU]}, "read_gb_per_s"),
        ({"links": [NIC + ",scope=host"], "tiers": ["gpu", CPU]}, "scope host has no effect with one worker"),
        ({"links": [NIC + ",scope=host"], "tiers": ["gpu", CPU], "workers": 2}, "--workers-per-host is above 1"),
        ({"links": [NIC, NIC], "tiers": ["gpu", CPU]}, "two links are called nic"),
        ({"links": [NIC.replace("nic", "cpu")], "tiers": ["gpu", CPU]}, "a link and a tier are both called cpu"),
        ({"tiers": ["gpu", CPU]}, "tier cpu: path = nic: unknown link 'nic'; there are none"),
        ({"tiers": ["gpu", CPU + "+nic"], "links": [NIC]}, "passes link nic twice"),
        ({"tiers": ["gpu,path=nic"], "links": [NIC]}, "path has no effect in the fastest tier"),
        ({"tiers": ["gpu", "cpu,sharing=fifo"]}, "sharing has no effect without a device"),
        ({"tiers": ["gpu", "cpu,device=cpu-pcie5,transfer=serial"]}, "no two links are passed"),
    ],
)
def test_each_bad_setting_of_a_clock_is_named_with_its_value(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        timed(**settings)
    assert says in str(caught.value)
