"""Tiers as options and as tables: what they become, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from kvbench.config import RunConfig, load_config
from kvbench.errors import ConfigError
from kvbench.tierconfig import TierConfig, parse_tier

CPU = {"name": "cpu", "capacity": 100}


def only(*texts: str, **settings: Any) -> list[TierConfig]:
    """The tiers of a run with these ``--tier`` options."""
    tiers = load_config(None, {"tiers": list(texts), **settings}).tiers
    assert tiers is not None
    return tiers


# -- the option ------------------------------------------------------------------------------------


def test_an_option_says_the_same_as_a_table() -> None:
    text = (
        "cpu, capacity = 64GiB, chunk=4,high=0.9,ratio=0.2,period_s=1.5,spare_own=false,touch_on=hit,"
        "policy=kvbm-lineage,policy.order=tick,admission.n=3,admission=min-count,device=s3,device.lookup_us=5,probes=4"
    )
    table = {
        "name": "cpu",
        "capacity": "64GiB",
        "chunk": 4,
        "high": 0.9,
        "ratio": 0.2,
        "period_s": 1.5,
        "spare_own": False,
        "touch_on": "hit",
        "policy": {"name": "kvbm-lineage", "order": "tick"},
        "admission": {"name": "min-count", "n": "3"},
        "device": {"name": "s3", "lookup_us": "5"},
        "probes": 4,
    }
    assert only(text) == load_config(None, {"tiers": [table]}).tiers


def test_quotas_are_given_tenant_by_tenant() -> None:
    (tier,) = only("gpu,capacity=10k,quotas.a=3k,quotas.b=1_000,quotas.c.d=7")
    assert tier.quotas == {"a": "3k", "b": "1_000", "c.d": "7"}


def test_a_tier_is_infinite_unless_it_has_a_capacity() -> None:
    (tier,) = only("ötzi 7")
    assert (tier.name, tier.capacity, tier.scope, tier.chunk) == ("ötzi 7", "infinite", "worker", 1)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "begin with the tier's name"),
        (" ,capacity=5", "begin with the tier's name"),
        ("capacity=5", "begin with the tier's name"),
        ("cpu,capacity", "'capacity' is not of the form key=value"),
        ("cpu,=5", "'=5' is not of the form key=value"),
        ("cpu,", "'' is not of the form key=value"),
        ("cpu,capcity=5", "unknown key 'capcity'; did you mean 'capacity'?"),
        ("cpu,name=gpu", "unknown key 'name'"),
        ("cpu,capacity=5,capacity=6", "capacity is given twice"),
        ("cpu,policy.k=5,policy.k=6", "policy.k is given twice"),
        ("cpu,policy=lru,policy.name=fifo", "the name of the policy is given as policy=NAME"),
        ("cpu,chunk.x=3", "chunk has no parameters"),
        ("cpu,quotas=5", "quotas are given tenant by tenant, as in quotas.NAME=10GiB"),
        ("cpu,quotas=5,quotas.a=5", "quotas are given tenant by tenant"),
        ("cpu,quotas.=5", "quotas are given tenant by tenant"),
        ("cpu,chunk=x", "Expected `int`, got `str` - at `$.chunk`"),
        ("cpu,scope=moon", "'moon'"),
        ("cpu,fit=some", "'some'"),
        ("cpu,spare_own=maybe", "Expected `bool`"),
    ],
)
def test_an_option_that_is_none_is_refused_with_its_text(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        only(text)
    assert str(caught.value).startswith(f"--tier {text}: ")
    assert says in str(caught.value)


def test_the_keys_that_an_option_knows_are_those_of_a_table() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_tier("cpu,nothing=1")
    for field in TierConfig.__struct_fields__:
        assert (field in str(caught.value)) == (field != "name")


# -- one tier --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"chunk": 0}, "chunk = 0 must be 1 to 1,073,741,824 blocks"),
        ({"chunk": 2**40}, "chunk = 1099511627776 must be 1 to"),
        ({"high": 0.0, "low": 0.5}, "high = 0 is a share above 0 and at most 1"),
        ({"high": 1.5, "low": 0.5}, "high = 1.5 is a share"),
        ({"high": float("nan"), "low": 0.5}, "high = nan is a share"),
        ({"high": 0.5}, "with high goes low or ratio, one of them"),
        ({"high": 0.5, "low": 0.1, "ratio": 0.1}, "with high goes low or ratio, one of them"),
        ({"high": 0.5, "low": 0.5}, "low = 0.5 is not below high = 0.5"),
        ({"low": 0.5}, "low, ratio and period_s have no effect without high"),
        ({"ratio": 0.5}, "low, ratio and period_s have no effect without high"),
        ({"period_s": 1.0}, "low, ratio and period_s have no effect without high"),
        ({"high": 0.9, "low": 0.5, "period_s": -1.0}, "period_s = -1 must be from 0 to 1e+09"),
        ({"high": 0.9, "low": 0.5, "period_s": float("inf")}, "period_s = inf must be from 0 to 1e+09"),
        ({"high": 0.9, "low": 0.5, "period_s": float("nan")}, "period_s = nan must be from 0 to 1e+09"),
        ({"high": 0.9, "low": 0.5, "period_s": 1e300}, "period_s = 1e+300 must be from 0 to 1e+09"),
        ({"probes": -1}, "probes = -1 must not be negative"),
        ({"policy": "lru", "quotas": {"a": 5}}, "quotas choose the policy, tenant-lru; leave policy out"),
        ({"capacity": "infinite", "high": 0.9, "low": 0.5}, "high has no effect with infinite capacity"),
        ({"capacity": "infinite", "policy": "lru"}, "policy has no effect with infinite capacity"),
        ({"capacity": "infinite", "order": "head-first"}, "order has no effect with infinite capacity"),
        ({"capacity": "infinite", "quotas": {"a": 5}}, "quotas has no effect with infinite capacity"),
        ({"capacity": "infinite", "touch_on": "hit"}, "touch_on has no effect with infinite capacity"),
        ({"capacity": "infinite", "spare_own": False}, "spare_own has no effect with infinite capacity"),
        ({"capacity": "infinite", "fit": "all"}, "fit has no effect with infinite capacity"),
    ],
)
def test_a_value_out_of_range_or_without_effect_is_refused(table: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(None, {"tiers": [{**CPU, **table}]})
    assert str(caught.value).startswith(f"tier cpu: {says}")


# -- where it stands -------------------------------------------------------------------------------


GPU = {"name": "gpu", "capacity": 10}
SSD = {"name": "ssd", "capacity": 1_000}
SEVERAL = {"workers": 4, "workers_per_host": 2}


@pytest.mark.parametrize(
    ("tiers", "settings", "says"),
    [
        ([CPU, CPU], {}, "two tiers are called cpu"),
        ([{"name": " "}], {}, "a tier has an empty name"),
        ([{"name": f"tier {at}"} for at in range(65)], {}, "65 tiers: a stack has at most 64"),
        ([{**CPU, "write": "back"}], {}, "tier cpu: write back needs a tier above that evicts"),
        ([CPU, {**SSD, "promotion": "copy"}], {}, "tier ssd: promotion has no effect in the last tier"),
        ([{"name": "cpu"}, {**SSD, "write": "back"}], {}, "tier ssd: write back has no effect below tier cpu"),
        (
            [CPU, {**SSD, "chunk": 3}, {"name": "dfs", "chunk": 4}],
            {},
            "tier dfs: chunk = 4 is no multiple of that of tier",
        ),
        ([{**CPU, "chunk": 2}, SSD], {}, "tier ssd: chunk = 1 is no multiple of that of tier cpu, 2"),
        ([CPU, {**SSD, "chunk": 2, "write": "back"}], {}, "tier ssd: blocks move from and to tier cpu, so chunks must"),
        ([{**CPU, "scope": "cluster"}], {}, "tier cpu: scope cluster has no effect with one worker; give --workers"),
        ([{**CPU, "scope": "host"}], {}, "tier cpu: scope host has no effect with one worker; give --workers"),
        ([{**CPU, "scope": "host"}], {"workers_per_host": 2}, "tier cpu: scope host has no effect with one worker"),
        ([{**CPU, "scope": "host"}], {"workers": 2}, "tier cpu: scope host is scope worker unless --workers-per-host"),
        ([{**CPU, "scope": "rank"}], {}, "tier cpu: scope rank has no effect with one rank; give --tp"),
        ([{**CPU, "scope": "cluster"}, SSD], SEVERAL, "tier ssd of scope worker is below one of scope cluster"),
        (
            [{**CPU, "scope": "rank"}, SSD],
            {"tp": 2, "placement": "exclusive"},
            "tier ssd: blocks move from and to tier cpu, so both or none are of scope rank",
        ),
        ([CPU], {"workers_per_host": 2}, "--workers-per-host has no effect without a tier of scope host"),
        ([CPU], {"walk": "once"}, "--walk has no effect with one tier"),
        ([CPU], {"placement": "exclusive"}, "--placement exclusive has no effect with one tier"),
        ([], {"order": "head-first"}, "--order has no effect without a tier"),
        ([{"name": "cpu"}], {"order": "head-first"}, "--order head-first has no effect: no tier evicts"),
        ([{**CPU, "order": "tail-first"}], {"order": "head-first"}, "--order head-first has no effect: no tier evicts"),
        ([CPU], {"order": "access"}, "--order access is block by block, for one tier; a stack serves requests whole"),
        ([CPU], {"capacity": 5}, "--capacity and --policy are those of a single tier; give them in each --tier"),
        ([CPU], {"policy": "lru"}, "--capacity and --policy are those of a single tier"),
        ([CPU], {"capacity": [5, 6]}, "--capacity and --policy are those of a single tier"),
        ([CPU], {"policy": ["lru", "fifo"]}, "--capacity and --policy are those of a single tier"),
        ([CPU], {"retries": 1}, "--retries has no effect without --faults"),
        ([CPU], {"timeline_every": 5}, "--timeline-every has no effect without --timeline"),
        ([CPU], {"timeline": "t", "timeline_every": 0}, "--timeline-every = 0 must be at least 1"),
        ([CPU], {"devices": "d.toml"}, "--devices has no effect: no tier has a device"),
        ([CPU], {"prefill_tokens_per_s": 10.0}, "--prefill-tokens-per-s has no effect: no tier has a device"),
        ([{**CPU, "device": "s3"}], {"prefill_tokens_per_s": 0.0}, "--prefill-tokens-per-s = 0 must be a positive"),
        ([{**CPU, "device": "s3"}], {"prefill_tokens_per_s": float("nan")}, "--prefill-tokens-per-s = nan must be"),
        ([{"name": "cpu"}], {"belady": "on"}, "--belady on has no effect unless every tier has a capacity"),
        ([CPU], {"tp": 2}, "--tp has no effect without --model"),
        (
            [GPU, {**CPU, "write": "back"}],
            {"placement": "spill"},
            "tier cpu: write and promotion have no effect with placement spill",
        ),
        (
            [{**GPU, "scope": "rank"}, {**CPU, "scope": "rank"}],
            {"placement": "spill", "tp": 2},
            "tier gpu: placement spill is for tiers of whole workers, not of scope rank",
        ),
    ],
)
def test_a_setting_that_means_nothing_where_it_stands_is_refused(
    tiers: list[dict[str, Any]], settings: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(None, {"tiers": tiers, **settings})
    assert str(caught.value).startswith(says)


@pytest.mark.parametrize(
    "change", [{"policy": "lru"}, {"order": "head-first"}, {"touch_on": "never"}, {"high": 0.9, "low": 0.5}]
)
def test_with_spill_only_the_last_tier_may_say_how_it_makes_room(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"^tier gpu: policy, order, touch_on and high have no effect with placement"):
        load_config(None, {"placement": "spill", "tiers": [{**GPU, **change}, CPU]})
    tiers = [GPU, {**CPU, **change}]
    assert load_config(None, {"placement": "spill", "tiers": tiers}).tiers is not None


@pytest.mark.parametrize(
    "name",
    ["placement", "walk", "workers_per_host", "devices", "prefill_tokens_per_s", "faults", "retries", "timeline"],
)
def test_settings_of_a_stack_are_refused_without_one(name: str) -> None:
    other = {"placement": "spill", "walk": "once", "prefill_tokens_per_s": 5.0, "workers_per_host": 2, "retries": 2}
    option = "--" + name.replace("_", "-")
    with pytest.raises(ConfigError, match=rf"^{option} has no effect without tiers; give --tier or --preset$"):
        load_config(None, {name: other.get(name, "file")})


def test_structures_texts_and_tables_say_the_same_also_on_a_preset() -> None:
    (table,) = load_config(None, {"tiers": [CPU]}).tiers or []
    assert load_config(None, {"tiers": [table]}).tiers == [table]
    assert load_config(None, {"tiers": [{**CPU, "capacity": "100"}]}).tiers == only("cpu,capacity=100")
    gpu = TierConfig(name="gpu", capacity=100, order="head-first")
    on_preset = load_config(None, {"preset": "vllm", "tiers": [gpu]})
    assert on_preset.tiers == [gpu]
    (merged,) = only("gpu,capacity=100", preset="vllm")
    assert (merged.capacity, merged.policy, merged.order) == ("100", "lru", "tail-first")


def test_a_stack_that_means_something_is_taken() -> None:
    config = load_config(
        None,
        {
            "workers": 4,
            "workers_per_host": 2,
            "tp": 2,
            "tiers": [
                {**GPU, "scope": "rank"},
                {**CPU, "scope": "worker", "chunk": 2},
                {**SSD, "scope": "host", "chunk": 4, "write": "through"},
                {"name": "dfs", "scope": "cluster", "chunk": 8},
            ],
        },
    )
    assert isinstance(config, RunConfig)
    assert config.tiers is not None
    assert [tier.name for tier in config.tiers] == ["gpu", "cpu", "ssd", "dfs"]
