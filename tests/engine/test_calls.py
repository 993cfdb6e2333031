"""Rows LM-01 to LM-40 that are about an engine's calls, and what of OP and BUG is.

Rows about tokens and hashes are in tests/tokens, about tiers in tests/replays/test_seed_rows.py.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kvbench
from kvbench import CacheEngine, ConfigError, EngineCosts, EngineMetadata
from kvbench.cache.fold import Fold
from kvbench.engine import Operation
from kvbench.errors import ArgumentError
from kvbench.plugins import Distribution
from kvbench.serving.devices import make_device
from kvbench.tokens import BlockHasher, ChainHash, LmcacheKey, make_hash

A, B, C = range(100, 116), range(200, 216), range(300, 316)
"""Prompts of four chunks of four tokens."""


def engine(*tiers: str, metadata: EngineMetadata | None = None, **settings: Any) -> CacheEngine:
    """Chunks of four tokens; a CPU of 100 chunks if no tier is given."""
    return CacheEngine(metadata, tiers=list(tiers) or ["cpu,capacity=100"], chunk_tokens=4, **settings)


def place(made: CacheEngine, tokens: range, held: dict[str, set[int]]) -> None:
    """Store a prompt everywhere, then take chunks out of each tier that it is not to hold."""
    made.store(tokens)
    keys = made._chunks(tokens, None, None, None, None)[0].keys
    for name, stores in zip(made.used_chunks, made._pool.stores(made.worker), strict=True):
        for store in stores:
            store.remove(keys[[at for at in range(len(keys)) if at not in held[name]]])


# -- gates -----------------------------------------------------------------------------------------


def test_LM_01_an_unhealthy_engine_answers_with_nothing_and_counts_it() -> None:
    made = engine()
    made.store(A)
    made.unhealthy()
    assert made.store(B) == (16, 0, "unhealthy")
    assert made.retrieve(A).mask.tolist() == [False] * 16
    assert made.lookup(A) == 0
    assert made.stats.degraded_operations == 3
    made.healthy()
    assert (made.lookup(A), made.lookup(B)) == (16, 0)


@pytest.mark.parametrize("shared", [True, False])
def test_LM_02_only_the_first_rank_stores_a_latent_that_all_have(shared: bool) -> None:
    """With TP 4; the shared tier stands for what ranks receive by broadcast."""
    first = engine(
        "host,capacity=100",
        metadata=EngineMetadata(model="m", world_size=4, mla=True, save_only_first_rank=shared),
        block_bytes=1000,
    )
    ranks = [first, *(first.peer(rank=rank) for rank in (1, 2, 3))]
    results = [each.store(A) for each in ranks]
    assert sum(each.stats.stored_bytes or 0 for each in ranks) == (4000 if shared else 16000)
    assert [result.reason for result in results] == ["", *["passive" if shared else ""] * 3]
    assert all(each.retrieve(A).mask.all() for each in ranks)


def test_LM_03_a_frozen_engine_reads_its_first_tier_and_changes_nothing() -> None:
    made = engine("cpu,capacity=4", "disk,capacity=100", keep_events=True)
    made.store(A)
    made.store(B)
    made.freeze()
    before = len(made.events)
    assert made.store(C) == (16, 0, "frozen")
    assert (made.lookup(B), made.lookup(A)) == (16, 0)
    assert made.retrieve(B).tier_tokens == {"cpu": 16, "disk": 0}
    assert len(made.events) == before
    made.freeze(False)
    assert made.lookup(A) == 16
    made.store(C)
    assert made.locations(B)[0] == ("disk",)


def test_LM_04_health_is_asked_first_and_a_frozen_store_is_no_request() -> None:
    made = engine(metadata=EngineMetadata(world_size=2, rank=1, mla=True, save_only_first_rank=True))
    made.freeze()
    made.unhealthy()
    assert made.store(A).reason == "unhealthy"
    made.healthy()
    assert made.store(A).reason == "passive"
    other = engine()
    other.freeze()
    assert other.store(A).reason == "frozen"
    assert (other.stats.store_requests, other.stats.frozen_stores) == (0, 1)


def test_LM_05_an_engine_that_never_came_up_stays_down() -> None:
    made = engine()
    made.mark_init_failed()
    made.healthy()
    made.unhealthy()
    made.healthy()
    assert made.store(A).reason == "init_failed"
    assert not made.is_healthy


@pytest.mark.parametrize(
    ("fault", "hits"),
    [
        (lambda made: made.unhealthy(), [0, 0, 0, 0]),
        (lambda made: made.mark_init_failed(), [0, 0, 0, 0]),
        (lambda made: made.inject("cpu", put_fails=1.0), [16, 0, 0, 16]),
        (lambda made: made.inject("cpu", get_fails=1.0), [0, 0, 0, 0]),
        (lambda made: made.inject("cpu", unhealthy=True), [0, 0, 0, 0]),
        (lambda made: made.freeze(), [16, 0, 0, 16]),
    ],
)
def test_LM_06_no_fault_raises_and_what_does_not_hit_is_computed(fault: Any, hits: list[int]) -> None:
    made = engine()
    made.store(A)
    fault(made)
    for prompt, hit in zip((A, B, B, A), hits, strict=True):
        assert int(made.retrieve(prompt).mask.sum()) == hit
        assert made.store(prompt, mask=[at >= hit for at in range(len(prompt))]).requested_tokens == 16 - hit
    assert made.references == 0


# -- identity --------------------------------------------------------------------------------------

FIELDS: dict[str, Any] = {
    "model": "other",
    "world_size": 8,
    "rank": 1,
    "kv_dtype": "fp8_e4m3fn",
    "layout": "hnd",
    "adapter": "sql",
    "salt": "tenant-a",
    "tags": {"user": "alice"},
}


@pytest.mark.parametrize("field", FIELDS)
def test_LM_11_BUG_03_OP_08_engines_that_differ_in_one_field_share_nothing(field: str) -> None:
    first = engine(metadata=EngineMetadata(model="m", world_size=4, kv_dtype="bfloat16"))
    first.store(A)
    assert first.peer().lookup(A) == 16
    other = first.peer(**{field: FIELDS[field]})
    assert other.lookup(A) == 0
    assert other.store(A).stored_tokens == 16
    assert first.keys(A)[0] != other.keys(A)[0]


def test_OP_07_layouts_of_different_width_never_hit_each_other_on_a_shared_tier() -> None:
    made = CacheEngine(
        tiers=["dfs,capacity=100,scope=cluster"], chunk_tokens=4, workers=12, metadata=EngineMetadata(world_size=4)
    )
    four = [made.peer(rank=rank, worker=rank) for rank in range(4)]
    eight = [made.peer(EngineMetadata(world_size=8, rank=rank), worker=4 + rank) for rank in range(8)]
    for each in four:
        each.store(A)
    assert [each.lookup(A) for each in four] == [16] * 4
    assert [each.lookup(A) for each in eight] == [0] * 8


def test_LM_12_tags_of_a_request_set_it_apart_in_any_order() -> None:
    made = engine()
    made.store(A, tags={"x": "1", "y": "2"})
    assert made.lookup(A) == 0
    assert made.lookup(A, tags={"y": "2", "x": "1"}) == 16
    assert made.lookup(A, tags={"x": "1", "y": "2", "z": ""}) == 16
    assert made.lookup(A, tags={"x": "1"}) == 0


@pytest.mark.parametrize(
    "form",
    [
        list,
        tuple,
        lambda a: np.array(a, np.int32),
        lambda a: np.array(a, np.int64),
        lambda a: np.array(a, np.uint32),
        pa.array,
    ],
)
def test_LM_09_prompts_in_any_form_hit_each_other(form: Any) -> None:
    made = engine()
    made.store(A)
    assert made.lookup(form(list(A))) == 16


def test_LM_07_OP_02_a_partial_last_chunk_is_stored_where_the_setting_says_so() -> None:
    """Off as in LMCache's configuration; its databases that are built without one have it on."""
    dropped, kept = engine(), engine(tails="keep")
    for made, offset in ((dropped, 4), (kept, 6)):
        made.store(range(6))
        assert made.lookup(range(6)) == offset
        assert made.lookup(range(7)) == 4


# -- store -----------------------------------------------------------------------------------------


def test_LM_14_a_store_keeps_the_leading_chunks_that_fit() -> None:
    made = engine("cpu,capacity=6")
    made.store(B)
    made.lookup(B, pin=True, lookup_id="b")
    assert made.store(A) == (16, 8, "")
    assert made.lookup(A) == 8
    made.lookup_unpin("b")
    assert made.store(A).stored_tokens == 8
    assert made.lookup(A) == 16


def test_LM_14_what_waits_for_room_is_stored_when_there_is_some() -> None:
    made = engine("cpu,capacity=6", wait_for_room=True)
    made.store(B)
    made.lookup(B, pin=True, lookup_id="b")
    made.store(A)
    assert made.lookup(A) == 8
    made.lookup_unpin("b")
    assert made.lookup(A) == 16
    assert made.stats.stored_share == 1.0


def test_LM_15_stored_tokens_are_what_was_stored() -> None:
    made = engine("cpu,capacity=3,policy=keep")
    assert made.stats.stored_share is None
    made.store(A)
    assert (made.stats.stored_tokens, made.stats.requested_store_tokens) == (12, 16)
    assert made.stats.stored_share == 0.75


def test_LM_16_a_store_is_one_transfer() -> None:
    made = CacheEngine(
        tiers=["cpu,capacity=100,device=cpu-pcie5"],
        chunk_tokens=4,
        block_bytes=1000,
        costs=EngineCosts(hashed_tokens_per_s=1e6, link=make_device("cpu-pcie5")),
    )
    made.store([])
    assert made.stats.store_ns == 0
    made.store(A)
    link = make_device("cpu-pcie5")
    assert made.stats.store_phase_ns["copy_out"] == link.read_ns(4000)
    assert link.read_ns(4000) < 4 * link.read_ns(1000)


def test_LM_17_a_prefix_that_is_there_is_not_stored_again() -> None:
    made = engine("cpu,capacity=100", "disk,capacity=100", keep_events=True)
    made.store(A)
    before = len(made.events)
    assert made.store(A).stored_tokens == 0
    assert len(made.events) == before
    made.store([*A, 1, 2, 3, 4])
    assert len(made.events) == before + 2


def test_LM_34_35_the_phases_of_a_store_add_up_and_give_its_throughput() -> None:
    cpu, nvme = make_device("cpu-pcie5"), make_device("nvme-gen4")
    made = CacheEngine(
        tiers=["cpu,capacity=100,device=cpu-pcie5", "nvme,capacity=100,device=nvme-gen4"],
        chunk_tokens=4,
        block_bytes=1_000_000,
        costs=EngineCosts(hashed_tokens_per_s=1e6, link=cpu),
    )
    made.store(A)
    phases = made.stats.store_phase_ns
    assert phases == {
        "keys": 16_000,
        "copy_out": cpu.read_ns(4_000_000),
        "put": cpu.write_ns(4_000_000) + nvme.write_ns(4_000_000),
    }
    assert made.stats.store_ns == sum(value or 0 for value in phases.values())
    peak = nvme.write_bandwidth_bytes_per_s
    assert made.stats.store_bytes_per_s is not None
    assert 0 < made.stats.store_bytes_per_s / peak < 1
    assert engine().stats.store_bytes_per_s is None


# -- retrieve --------------------------------------------------------------------------------------


def test_LM_18_a_retrieve_reads_each_tier_once() -> None:
    made = engine("cpu,capacity=100,promotion=none", "disk,capacity=100")
    place(made, A, {"cpu": {0, 1}, "disk": {2, 3}})
    assert made.retrieve(A).tier_tokens == {"cpu": 8, "disk": 8}
    for stores in made._pool.stores(0):
        assert stores[0].counters()["read_operations"] == 1


@pytest.mark.parametrize("missing", range(4))
def test_LM_19_only_the_contiguous_prefix_counts(missing: int) -> None:
    made = engine()
    place(made, A, {"cpu": set(range(4)) - {missing}})
    assert made.lookup(A) == 4 * missing
    assert int(made.retrieve(A).mask.sum()) == 4 * missing


def test_LM_20_22_38_the_first_failing_chunk_cuts_the_mask_and_what_follows_is_wasted() -> None:
    """Also where a faster tier had delivered the later chunks already."""
    made = engine("cpu,capacity=100", "disk,capacity=100", block_bytes=1000)
    place(made, A, {"cpu": {0, 1, 3}, "disk": {2}})
    made.inject("disk", get_fails=1.0)
    mask, tiers = made.retrieve(A)
    assert mask.tolist() == [True] * 8 + [False] * 8
    assert tiers == {"cpu": 8, "disk": 0}
    assert (made.stats.wasted_tokens, made.stats.wasted_bytes) == (8, 2000)
    assert made.stats.gap_tokens == 8


def test_LM_21_24_36_no_pin_outlives_its_call_and_each_start_has_its_end() -> None:
    heard: list[Operation] = []
    made = engine("cpu,capacity=6", observer=heard.append)
    made.store(A)
    made.lookup(A, pin=True, lookup_id=1)
    assert made.references == made.leased == 4
    made.inject("cpu", get_fails=1.0)
    made.retrieve(A, lookup_id=1)
    made.unhealthy()
    made.store(A)
    with pytest.raises(ArgumentError):
        made.retrieve([-1])
    assert made.references == 0
    ends = [(each.number, each.kind) for each in heard if each.phase == "finish"]
    assert ends == [(each.number, each.kind) for each in heard if each.phase == "start"]
    assert [each.reason for each in heard if each.kind == "store" and each.phase == "finish"] == ["", "unhealthy"]


@pytest.mark.parametrize("fails", [False, True])
def test_LM_23_a_receiver_keeps_nothing_of_what_it_retrieved(fails: bool) -> None:
    made = engine("cpu,capacity=4", remove_after_retrieve=True)
    made.store(A)
    made.lookup(A, pin=True, lookup_id=1)
    made.inject("cpu", get_fails=float(fails))
    assert made.retrieve(A, lookup_id=1).mask.any() != fails
    assert (made.references, made.used_chunks) == (0, {"cpu": 0})
    made.inject("cpu")
    assert not made.retrieve(A).mask.any()


def test_LM_25_26_a_mask_leaves_out_leading_chunks_of_the_same_chain() -> None:
    """kvbench differs from LMCache in that a False behind a True is an error."""
    made = engine()
    made.store(A, mask=[False] * 8 + [True] * 8)
    assert made.locations(A) == [(), (), ("cpu",), ("cpu",)]
    made.store(A)
    assert made.retrieve(A, mask=[False] * 8 + [True] * 8).mask.tolist() == [False] * 8 + [True] * 8
    with pytest.raises(ArgumentError, match="not a multiple"):
        made.store(A, mask=[False] * 5 + [True] * 11)
    with pytest.raises(ArgumentError, match="False at token 8"):
        made.store(A, mask=[True] * 8 + [False] * 4 + [True] * 4)


def test_LM_27_OP_05_hashes_stand_for_tokens() -> None:
    made = engine()
    hashes = BlockHasher(block_tokens=4).blocks(A).digests
    made.store(A)
    assert made.lookup(hashes=hashes, offsets=[4] * 4) == 16
    assert made.retrieve(hashes=hashes, offsets=[4] * 4).mask.all()
    with pytest.raises(ArgumentError, match="neither tokens nor hashes"):
        made.lookup()
    with pytest.raises(ArgumentError, match="offsets"):
        made.store(hashes=hashes)


def test_LM_29_a_chunk_is_fetched_whole_and_the_overlap_counted() -> None:
    made = CacheEngine(tiers=["cpu,capacity=100"], chunk_tokens=256)
    made.store(range(512))
    assert made.lookup(range(512), num_computed_tokens=288) == 512
    mask, tiers = made.retrieve(range(512), num_computed_tokens=288)
    assert np.flatnonzero(mask).tolist() == list(range(256, 512))
    assert (tiers, made.stats.overlap_tokens) == ({"cpu": 256}, 32)


@pytest.mark.parametrize(("rounding", "fetched", "overlap"), [("down", 512, 0), ("up", 768, 68)])
def test_OP_26_a_cut_takes_chunks_of_the_uncut_chain(rounding: Any, fetched: int, overlap: int) -> None:
    made = CacheEngine(tiers=["cpu,capacity=100"], chunk_tokens=256, tails="keep", round_fetch=rounding)
    made.store(range(1000))
    mask, tiers = made.retrieve(range(1000), max_fetch=700)
    assert int(mask.sum()) == tiers["cpu"] == fetched
    assert made.stats.overlap_tokens == overlap


def test_OP_28_a_chunk_that_vanishes_behind_the_lookup_cuts_the_prefix() -> None:
    made = engine()
    made.store(A)
    assert made.lookup(A) == 16
    place(made, A, {"cpu": {0, 1, 3}})
    assert int(made.retrieve(A).mask.sum()) == 8


def test_OP_25_tokens_by_tier_are_disjoint_and_sum_to_the_match() -> None:
    made = engine("cpu,capacity=100,promotion=none", "disk,capacity=100")
    for cpu, disk in product([{0}, {0, 2}, {1, 3}], [{1}, {1, 2, 3}, {0, 2}]):
        made.clear()
        place(made, A, {"cpu": cpu, "disk": disk})
        mask, tiers = made.retrieve(A)
        known = next((at for at in range(4) if at not in cpu | disk), 4)
        assert int(mask.sum()) == sum(tiers.values()) == made.lookup(A) == 4 * known
        for computed in range(17):
            first = computed // 4
            ends = next((at for at in range(first, 4) if at not in cpu | disk), 4)
            assert made.lookup(A, num_computed_tokens=computed) == (4 * ends if ends > first else computed)


# -- lookups and leases ----------------------------------------------------------------------------


def test_LM_28_what_a_lookup_pinned_survives_until_it_is_retrieved() -> None:
    made = engine("cpu,capacity=4")
    made.store(A)
    made.lookup(A, pin=True, lookup_id="r")
    made.store(B)
    assert made.retrieve(A, lookup_id="r").mask.all()
    made.store(B)
    assert made.lookup(B) == 16
    made.lookup(B, pin=True, lookup_id="aborted")
    assert made.lookup_unpin("aborted")
    assert not made.lookup_unpin("aborted")
    made.store(A)
    assert made.lookup(A) == 16


@pytest.mark.parametrize("pin", [False, True])
def test_LM_28_a_lookup_without_pin_changes_no_order(pin: bool) -> None:
    made = engine("cpu,capacity=8,touch_on=lookup")
    made.store(A)
    made.store(B)
    made.lookup(A, pin=pin, lookup_id=1 if pin else None)
    if pin:
        made.lookup_unpin(1)
    made.store(C)
    assert (made.lookup(A), made.lookup(B)) == ((16, 0) if pin else (0, 16))


def test_a_lease_runs_out_on_the_clock_that_is_passed_in() -> None:
    now = 0
    made = engine("cpu,capacity=4", clock=lambda: now, pin_timeout_s=2.0)
    made.store(A)
    made.lookup(A, pin=True, lookup_id=1)
    now = 1_999_999_999
    assert (made.store(B).stored_tokens, made.references) == (0, 4)
    now = 2_000_000_000
    assert (made.store(B).stored_tokens, made.references) == (16, 0)
    assert made.stats.forced_unpins == 1


def test_pins_by_hand_are_counted_and_run_out_never() -> None:
    now = 0
    made = engine("cpu,capacity=4", clock=lambda: now, pin_timeout_s=1.0)
    made.store(A)
    assert made.pin(A) == made.pin(A) == 16
    now = 10**12
    made.unpin(A)
    assert made.store(B).stored_tokens == 0
    assert made.remove(A) == 0
    made.unpin(A)
    assert made.store(B).stored_tokens == 16
    with pytest.raises(ArgumentError, match="not pinned"):
        made.unpin(A)


def test_a_closed_engine_has_no_leases_and_takes_no_calls() -> None:
    with engine() as made:
        made.store(A)
        made.lookup(A, pin=True, lookup_id=1)
        other = made.peer()
    assert made.references == 0
    assert other.lookup(A) == 16
    with pytest.raises(ArgumentError, match="closed"):
        made.lookup(A)


# -- the rest --------------------------------------------------------------------------------------


def test_LM_30_documents_hit_in_any_order_as_segments() -> None:
    docs = [list(range(start, start + 5)) for start in (10, 20, 30)]
    made = engine(separator=[1, 2])
    made.store([*docs[0], 1, 2, *docs[1], 1, 2, *docs[2]])
    mask = made.retrieve([*docs[2], 1, 2, *docs[0], 1, 2, *docs[0], 1, 2, *docs[1]]).mask
    assert mask.tolist() == [*[True] * 5, False, False] * 3 + [True] * 5
    chained = engine()
    chained.store([*docs[0], *docs[1]])
    assert chained.lookup([*docs[1], *docs[0]]) == 0


def test_LM_31_a_hash_a_tiers_policy_and_its_device_may_be_a_plugins() -> None:
    """Each kind has a contract in kvbench.testing, which every built-in part keeps."""

    class Reversed(ChainHash):
        form = "int"
        root = 7

        def chain(self, parent: Any, tokens: Any, extra: Any = None, ahead: Any = None) -> int:
            return (31 * int(parent or 0) + int(np.asarray(tokens).sum())) % 2**64

        def key(self, digest: Any) -> int:
            return int(digest)

    class Module:
        @kvbench.hookimpl
        def kvbench_hash_algorithms(self) -> Any:
            yield kvbench.HashAlgorithmSpec("sums", Reversed, "Sums.")

        @kvbench.hookimpl
        def kvbench_eviction_policies(self) -> Any:
            yield kvbench.EvictionPolicySpec("mine", "kvbench.eviction.mru:Mru", "The youngest first.")

        @kvbench.hookimpl
        def kvbench_devices(self) -> Any:
            yield kvbench.DeviceSpec("shelf", lambda name: replace(make_device("s3"), name=name), "A shelf.")

    registry = kvbench.load_registry([(Module(), Distribution("example", "1"))], autoload=False)
    made = CacheEngine(
        tiers=["shelf,capacity=2,policy=mine,device=shelf"],
        chunk_tokens=4,
        block_bytes=1000,
        hashing=make_hash("sums", registry),
        registry=registry,
    )
    made.store([1] * 4)
    made.store([2] * 4)
    made.store([3] * 4)
    assert [made.lookup([number] * 4) for number in (1, 2, 3)] == [4, 0, 4]
    assert made.keys([1] * 4)[0].chunk_hash == 31 * 7 + 4
    assert made.stats.store_phase_ns["put"] == 3 * make_device("s3").write_ns(1000)


def test_LM_32_33_rates_of_nothing_are_null_and_the_gap_is_what_failed() -> None:
    made = engine()
    assert set(made.stats.hit_rates.values()) == {None}
    made.store(A)
    assert made.lookup(A) == 16
    made.inject("cpu", get_fails=1.0)
    made.retrieve(A)
    rates = made.stats.hit_rates
    assert (rates["lmcache_lookup"], rates["lmcache_retrieve"]) == (1.0, 0.0)
    assert made.stats.gap_tokens == 16 == made.stats.wasted_tokens


def test_LM_37_events_of_stores_rebuild_the_prefix_tree() -> None:
    """And those of removals fold to what is left, which LMCache's do not."""
    made = engine("cpu,capacity=6", keep_events=True)
    made.store(A)
    made.store([*A, *B])
    made.remove(B)
    fold = Fold()
    for event in made.events:
        fold.event(event["kind"], (event["tier"], event["store"]), event["key"], parent=event["parent"])
    held = fold.holdings["cpu", 0]
    assert len(held) == made.used_chunks["cpu"] == 6
    chain = made._chunks([*A, *B], None, None, None, None)[0].keys.tolist()
    parents = dict(zip(chain, [None, *chain], strict=False))
    assert held == {key: parents[key] for key in held}
    with pytest.raises(ArgumentError, match="keep_events"):
        _ = engine().events


def test_LM_39_stores_and_lookups_may_be_kept_to_some_tiers() -> None:
    made = engine("cpu,capacity=100", "disk,capacity=100", store_tiers=["disk"], retrieve_tiers=["cpu"])
    made.store(A)
    assert made.locations(A) == [("disk",)] * 4
    assert (made.lookup(A), made.retrieve(A).mask.any()) == (0, False)
    everywhere = engine("cpu,capacity=100", "disk,capacity=100", store_tiers=["disk"])
    everywhere.store(A)
    assert everywhere.retrieve(A).tier_tokens == {"cpu": 0, "disk": 16}
    with pytest.raises(ConfigError, match="'dsk'; did you mean 'disk'"):
        engine("disk,capacity=1", store_tiers=["dsk"])


def test_LM_40_layers_are_keys_of_their_own_and_lie_where_their_chunk_lies() -> None:
    """Where LMCache asks whether all layers are in one place, kvbench stores and evicts chunks whole."""
    made = engine("cpu,capacity=3")
    made.store(A)
    keys = [LmcacheKey("m", 1, 0, 7 + at, "bfloat16") for at in range(4)]
    layers = {replace(key, layer=layer).to_text() for key in keys for layer in range(32)}
    assert len(layers) == 4 * 32
    assert made.lookup(A) == 4 * made.used_chunks["cpu"]


@pytest.mark.parametrize(
    ("settings", "error", "part"),
    [
        ({"tiers": []}, None, ""),
        ({}, ConfigError, "an engine needs tiers, or a preset"),
        ({"tiers": ["cpu,capacity=10%"]}, ConfigError, "in percent"),
        ({"tiers": ["cpu,capacity=4"], "belady": "on"}, ConfigError, "'belady' says nothing of an engine"),
        ({"tiers": ["cpu,capacity=4"], "pin_timeout_s": 0}, ConfigError, "pin_timeout_s = 0"),
        (
            {"tiers": ["cpu,capacity=4"], "separator": [1], "tails": "keep"},
            ConfigError,
            "has no effect with a separator",
        ),
        ({"tiers": ["cpu,capacity=4"], "chunk_tokens": 0}, ConfigError, "chunk_tokens = 0"),
        ({"tiers": ["cpu,capacity=4"], "chunk_tokens": 2**32, "separator": [1]}, ConfigError, "chunk_tokens = 42949"),
        ({"tiers": ["cpu,capacity=4"], "hashing": "blake4"}, ConfigError, "did you mean 'blake3'"),
        ({"tiers": ["cpu,capacity=4,policy=tenant-lru"]}, ConfigError, "tenant"),
    ],
)
def test_a_wrong_setting_is_one_clear_error(settings: dict[str, Any], error: Any, part: str) -> None:
    if error is None:
        assert CacheEngine(**settings).lookup(A) == 0
        return
    with pytest.raises(error, match=part):
        CacheEngine(**settings)


@pytest.mark.parametrize(
    ("call", "part"),
    [
        (lambda made: made.lookup([-1]), "-1"),
        (lambda made: made.lookup([2**32]), "4294967296"),
        (lambda made: made.lookup(A, pin=True), "lookup_id"),
        (lambda made: made.lookup(A, lookup_id=1), "lookup_id"),
        (lambda made: made.lookup(A, num_computed_tokens=17), "17 is not within 16"),
        (lambda made: made.retrieve(A, max_fetch=-1), "max_fetch = -1"),
        (lambda made: made.retrieve(A, mask=[True]), "1 values"),
        (lambda made: made.inject("gpu"), "no tier is called 'gpu'"),
        (lambda made: made.peer(worker=1), "workers 0 to 0"),
    ],
)
def test_a_wrong_argument_is_one_clear_error(call: Any, part: str) -> None:
    made = engine()
    with pytest.raises(ArgumentError, match=part):
        call(made)
    assert made.lookup(A) == 0


def test_ids_above_two_to_the_31_are_tokens_like_others() -> None:
    made = engine()
    prompt = [2**31 + at for at in range(8)] + [2**32 - 1] * 4
    made.store(prompt)
    assert made.lookup(prompt) == 12
    assert made.lookup([0, *prompt[1:]]) == 0
