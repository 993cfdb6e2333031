"""The policies of LLM KV caches against golden runs, published counts and naive models."""

from __future__ import annotations

import json

import kv_models
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kv_models import told
from policies import evictions, hits, make, mooncake, replay

from kvbench.cache import ORDERS, EventLog, Tier
from kvbench.cache.events import EVENT_FIELDS
from kvbench.errors import ConfigError, PolicyError
from kvbench.eviction import PolicyContext
from kvbench.testing.stories import play, stories
from kvbench.testing.strategies import requests

SIZES = 1_000, 10_000, 30_000, 50_000, 100_000

QUICK = settings(deadline=None, max_examples=60)


def used(model, slot):
    return model.uses[slot], model.clock


LEAF_RANKS = {
    ("leaf-lru", ""): lambda model, slot: model.clock,
    ("leaf-lfu", ""): used,
    ("sglang", "lru"): lambda model, slot: model.clock,
    ("sglang", "lfu"): used,
    ("sglang", "fifo"): lambda model, slot: model.first[slot],
    ("sglang", "mru"): lambda model, slot: -model.clock,
    ("sglang", "filo"): lambda model, slot: -model.first[slot],
    ("sglang", "slru"): lambda model, slot: (model.uses[slot] >= 2, model.clock),
    ("kvbm-lineage", "tick"): lambda model, slot: model.clock,
    ("kvbm-lineage", "fifo"): lambda model, slot: model.first[slot],
}


@QUICK
@given(story=stories())
@pytest.mark.parametrize(("name", "param"), LEAF_RANKS)
def test_leaf_policies_do_event_for_event_what_their_rule_says(name, param, story):
    params = {{"sglang": "strategy", "kvbm-lineage": "order"}[name]: param} if param else {}
    model = kv_models.Leaf(PolicyContext(story.capacity), LEAF_RANKS[name, param])
    assert play(make(name, story.capacity, **params), story) == play(model, story)


@QUICK
@given(story=stories(), alpha=st.sampled_from([0.0, 1.0, 3000.0]))
def test_marconi_weighs_depth_against_recency(story, alpha):
    worth = alpha * 16 * 2 / (4 * 4096 + 3 * 14336)

    def rank(model, slot):
        return model.clock / model.capacity + worth * model.position, model.clock

    model = kv_models.Leaf(PolicyContext(story.capacity), rank)
    assert play(make("marconi", story.capacity, alpha=alpha), story) == play(model, story)


@QUICK
@given(story=stories())
@pytest.mark.parametrize("out", ["high", "low"])
def test_length_aware_looks_at_position_after_the_count(out, story):
    sign = -1 if out == "high" else 1

    def rank(model, slot):
        return model.uses[slot], sign * model.position, model.clock

    model = kv_models.Ranked(PolicyContext(story.capacity), rank)
    assert play(make("length-aware", story.capacity, out=out), story) == play(model, story)


@QUICK
@given(story=stories())
def test_multilru_keeps_four_lists_by_how_often_a_key_was_asked_for(story):
    asked = {}

    def rank(model, slot):
        key = model.keys[slot]
        asked[key] = min(asked.get(key, 0) + 1, 15)
        return sum(asked[key] >= least for least in (2, 3, 5)), model.clock

    model = kv_models.Ranked(PolicyContext(story.capacity), rank)
    policy = make("kvbm-multilru", story.capacity, warm=2, hot=3, hottest=5)
    assert play(policy, story) == play(model, story)


CASES = st.tuples(requests(max_requests=30), st.integers(1, 12), st.sampled_from(sorted(ORDERS)), st.integers(0, 2**32))


@QUICK
@given(case=CASES)
def test_vllm_offload_lru_ranks_by_request_and_position_in_any_sweep_order(case):
    asked, capacity, order, _ = case
    model = kv_models.Ranked(PolicyContext(capacity), lambda model, slot: (model.request_index, -model.position))
    result, expected = (told(policy, asked, order)[0] for policy in (make("vllm-offload-lru", capacity), model))
    assert result == expected


@QUICK
@given(case=CASES)
def test_t_lru_evicts_first_what_the_next_turn_can_afford_to_lose(case):
    asked, capacity, order, seed = case
    tokens = np.random.default_rng(seed).integers(-1, 160, len(asked))

    def rank(model, slot):
        history = model.input_tokens if model.input_tokens >= 0 else 16 * len(asked[model.request_index])
        return 16 * model.position < max(0, history + 10 - 60), model.clock

    policy = make("t-lru", capacity, threshold=60, next_turn=10)
    model = kv_models.Ranked(PolicyContext(capacity), rank)
    result, expected = (told(each, asked, order, input_tokens=tokens)[0] for each in (policy, model))
    assert result == expected


@QUICK
@given(case=CASES, retention=st.sampled_from([0, 3]))
def test_trtllm_evicts_by_priority_until_it_ends(case, retention):
    asked, capacity, order, seed = case
    rng = np.random.default_rng(seed)
    facts = {
        "priority": rng.choice([-1, 0, 20, 35, 80, 101], len(asked)),
        "arrival_ns": np.cumsum(rng.integers(0, 3, len(asked))) * 1_000_000_000,
    }
    policy = make("trtllm", capacity, retention_s=retention)
    model = kv_models.TrtLlm(PolicyContext(capacity), retention * 1_000_000_000)
    result, expected = (told(each, asked, order, **facts)[0] for each in (policy, model))
    assert result == expected


@QUICK
@given(case=CASES)
def test_sglang_priority_keeps_the_highest_priority_of_a_block(case):
    asked, capacity, order, seed = case
    priority = np.random.default_rng(seed).integers(-1, 4, len(asked))
    highest = {}

    def rank(model, slot):
        before = highest[slot] if model.uses[slot] > 1 else 0
        highest[slot] = max(before, model.priority)
        return highest[slot], model.clock

    policy, model = make("sglang-priority", capacity), kv_models.Leaf(PolicyContext(capacity), rank)
    result, expected = (told(each, asked, order, priority=priority)[0] for each in (policy, model))
    assert result == expected


@QUICK
@given(case=CASES, ttl=st.sampled_from([0, 2, 5]), first=st.booleans())
def test_continuum_keeps_sessions_that_come_back_in_time(case, ttl, first):
    asked, capacity, order, seed = case
    rng = np.random.default_rng(seed)
    facts = {
        "session_id": rng.integers(-1, 4, len(asked)),
        "arrival_ns": np.cumsum(rng.integers(0, 4, len(asked))) * 1_000_000_000,
    }
    policy = make("continuum", capacity, ttl_s=ttl, first=first)
    model = kv_models.Continuum(PolicyContext(capacity), ttl * 1_000_000_000, first)
    result, expected = (told(each, asked, order, **facts)[0] for each in (policy, model))
    assert result == expected


@QUICK
@given(case=CASES)
def test_workload_aware_evicts_the_least_likely_to_be_used_again(case):
    asked, capacity, order, seed = case
    rng = np.random.default_rng(seed)
    facts = {
        "turn": rng.integers(-1, 10, len(asked)),
        "type": rng.integers(-1, 3, len(asked)),
        "arrival_ns": np.cumsum(rng.integers(0, 4, len(asked))) * 1_000_000_000,
    }
    policy, model = make("workload-aware-type", capacity), kv_models.WorkloadAware(PolicyContext(capacity))
    result, expected = (told(each, asked, order, **facts)[0] for each in (policy, model))
    assert result == expected


# -- golden runs and published counts ----------------------------------------------------------


def golden_steps(shared, run):
    return json.loads((shared / "golden/golden_policies.json").read_text())[run]["steps"]


def victims_and_hits(policy, steps, order):
    log = EventLog()
    tier = Tier(policy, order=order, log=log)
    for step in steps:
        before = log.size
        hit = tier.serve(np.array(step["chain"], dtype=np.uint64))
        events = np.frombuffer(log.tobytes(), dtype=np.dtype(list(EVENT_FIELDS)))[before:]
        yield hit, events["key"][events["kind"] == 1].tolist()


@pytest.mark.parametrize("order", ORDERS)
def test_vllm_offload_lru_gives_the_golden_victims(shared, order):
    steps = golden_steps(shared, "vllm_cpu_lru")
    run = victims_and_hits(make("vllm-offload-lru", 16), steps, order)
    assert list(run) == [(step["hit"], step["evicted"]) for step in steps]


def test_vllm_offload_arc_gives_the_golden_victims(shared):
    steps = golden_steps(shared, "vllm_cpu_arc")
    run = victims_and_hits(make("vllm-offload-arc", 16), steps, "tail-first")
    assert list(run) == [(step["hit"], step["evicted"]) for step in steps]


def test_lru_under_the_protocol_of_lmcache_mp_gives_its_golden_victims(shared):
    """There, hits are touched and new keys stored by separate calls, and a loop evicts a fifth at
    20 resident keys. A request for the free room and the share of the fifth makes LRU give that."""
    capacity, log = 26, EventLog()
    tier = Tier(make("lru", capacity), log=log)
    for number, step in enumerate(golden_steps(shared, "lmcache_mp_LRU")):
        hit = tier.probe(chain(*step["chain"]))
        tier.serve(chain(*step["chain"][:hit]))
        new = [key for key in step["chain"][hit:] if key not in tier.residents()]
        tier.serve(chain(*new))
        assert (hit, new) == (step["hit"], step["created"])
        if tier.used >= 20:
            share, before = tier.used // 5, log.size
            filler = chain(*range(1000 * (number + 1), 1000 * (number + 1) + capacity - tier.used + share))
            tier.serve(filler)
            events = np.frombuffer(log.tobytes(), dtype=np.dtype(list(EVENT_FIELDS)))[before:]
            assert events["key"][events["kind"] == 1].tolist() == step["evicted_ratio_0.2"]
            tier.remove(filler)
        assert tier.used == step["resident"]


LENGTH_AWARE_HITS = {
    ("conversation", "low"): [13_539, 28_946, 49_326, 64_727, 91_537],
    ("conversation", "high"): [14_535, 32_392, 58_519, 75_080, 96_490],
    ("synthetic", "low"): [4_049, 32_430, 69_410, 77_953, 77_953],
    ("synthetic", "high"): [2_323, 22_735, 61_762, 77_953, 77_953],
}


@pytest.mark.parametrize(("trace", "out"), LENGTH_AWARE_HITS)
def test_length_aware_gives_the_published_counts(shared, trace, out):
    ids, offsets = mooncake(shared, trace)
    assert [hits("length-aware", ids, size, offsets, out=out) for size in SIZES] == LENGTH_AWARE_HITS[trace, out]


PERFECT_LFU_HITS = {
    "conversation": [23_400, 54_212, 80_674, 98_957, 104_755],
    "synthetic": [9_950, 51_213, 76_290, 77_953, 77_953],
}


@pytest.mark.parametrize("trace", PERFECT_LFU_HITS)
def test_lfu_that_remembers_all_keys_gives_the_published_counts(shared, trace):
    ids, offsets = mooncake(shared, trace)
    found = [hits("lfu-perfect", ids, size, offsets, ghosts=200_000 / size) for size in SIZES]
    assert found == PERFECT_LFU_HITS[trace]


def test_lfu_that_remembers_nothing_is_lfu(shared):
    ids, offsets = mooncake(shared, "synthetic")
    assert hits("lfu-perfect", ids, 1_000, offsets, ghosts=0) == 4_885


LRU_HITS = {"conversation": [12_847, 61_046, 93_978], "synthetic": [10_252, 51_669, 76_077]}


@pytest.mark.parametrize("name", ["leaf-lru", "kvbm-lineage", "sglang"])
@pytest.mark.parametrize("trace", LRU_HITS)
def test_leaf_lru_is_tail_first_lru_in_any_sweep_order(shared, trace, name):
    """Its heads outlive its tails, as those of LRU do after a tail-first sweep."""
    ids, offsets = mooncake(shared, trace)
    for order in ORDERS:
        counts = [replay(make(name, size), ids, offsets, order)[0] for size in SIZES[:3]]
        assert [count["hit_blocks"] for count in counts] == LRU_HITS[trace]
        assert [count["resident_blocks"] for count in counts] == LRU_HITS[trace]


# -- hand-made sequences -----------------------------------------------------------------------


def chain(*keys):
    return np.array(keys, dtype=np.uint64)


@pytest.mark.parametrize(
    ("name", "params", "kept"),
    [("leaf-lfu", {}, True), ("sglang", {"strategy": "slru"}, True), ("sglang", {}, False), ("lru", {}, False)],
)
def test_counting_policies_keep_a_hot_block_in_a_scan(name, params, kept):
    tier = Tier(make(name, 3, **params))
    for key in [9, 9, 9, 9, 9, 1, 2, 3, 4, 5]:
        tier.serve(chain(key))
    assert (9 in tier.residents()) == kept


def test_leaf_policy_evicts_the_branch_not_the_stem():
    """1-2-3 was used last, 1-2-4 before it; of what is left the older leaf goes."""
    assert evictions(make("leaf-lru", 4), [[1, 2, 4], [1, 2, 3], [7], [8], [9]], "head-first") == [4, 3, 2]


def test_child_whose_parent_was_removed_is_an_orphan_until_the_parent_returns():
    log = EventLog()
    tier = Tier(make("leaf-lru", 3), log=log)
    tier.serve(chain(1, 2))
    tier.remove(chain(1))
    tier.serve(chain(1, 2))  # ties 2 to 1 again, so 1 may not go before it
    tier.serve(chain(5, 6))
    assert sorted(tier.residents()) == [1, 5, 6]


def test_ids_that_are_no_prefixes_make_no_cycles():
    """1 is the parent of 2 and 2 that of 1; there is a leaf all the same."""
    assert len(evictions(make("leaf-lru", 2), [[1, 2], [2, 1], [3], [4]])) == 2


@pytest.mark.parametrize("noisy", [[[key] for key in range(100, 110)], [list(range(100, 110))]])
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_noisy_tenant_does_not_evict_the_quiet_one(noisy, share):
    asked = [[1, 2], *noisy, [1, 2]]
    tenants = [0, *[1] * len(noisy), 0]
    for order in ORDERS:
        _, hit = told(make("tenant-lru", 4, share=share), asked, order, tenant=tenants)
        assert hit[-1] == 2


def test_tenants_lend_room_that_nobody_needs():
    asked = [[1, 2, 3, 4], [1, 2, 3, 4], [7, 8], [1, 2, 3, 4]]
    _, hit = told(make("tenant-lru", 4), asked, tenant=[0, 0, 1, 0])
    assert hit.tolist() == [0, 4, 0, 2]


def test_quotas_of_more_than_the_tier_are_refused():
    with pytest.raises(PolicyError, match=r"3 tenants with share = 0\.5 each have quotas of more than the tier"):
        told(make("tenant-lru", 4, share=0.5), [[1], [2], [3]], tenant=[0, 1, 2])
    with pytest.raises(ConfigError, match="share is a part of the tier"):
        make("tenant-lru", 4, share=1.5)


@QUICK
@given(case=CASES)
def test_no_tenant_hits_less_than_alone_in_a_tier_of_its_quota(case):
    asked, capacity, _, seed = case
    tenants = np.random.default_rng(seed).integers(0, 2, len(asked))
    asked = [keys + np.uint64(1_000_000 * tenant) for keys, tenant in zip(asked, tenants, strict=True)]
    _, shared_hits = told(make("tenant-lru", 2 * capacity, share=0.5), asked, "access", tenant=tenants)
    for tenant in set(tenants.tolist()):
        mine = [keys for keys, owner in zip(asked, tenants, strict=True) if owner == tenant]
        _, alone = told(make("lru", capacity), mine, "access")
        assert (shared_hits[tenants == tenant] >= alone).all()


def test_thresholds_of_multilru_must_rise():
    with pytest.raises(ConfigError, match="warm < hot < hottest"):
        make("kvbm-multilru", 4, warm=8, hot=8)


def test_multilru_halves_its_counts():
    """After 40 counts of a sketch for 4 keys the hot block is no hotter than others."""
    tier = Tier(make("kvbm-multilru", 2, warm=2, hot=3, hottest=15, sketch=4))
    for key in [1] * 15 + [2, 3] * 40:
        tier.serve(chain(key))
    assert 1 not in tier.residents()
