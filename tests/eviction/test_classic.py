"""The classic policies, against published counts, libCacheSim, naive models and hand-made streams."""

from __future__ import annotations

import classic_models as models
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kv_models import Ranked
from oracle import oracle_hits, write_oracle_file
from policies import cloud_physics, evictions, hits, make, mooncake, zipf
from weka import merged_trace

from kvbench.errors import ConfigError
from kvbench.eviction import PolicyContext
from kvbench.testing.stories import Step, Story, play, stories

CLOUD_SIZES = 128, 256, 489, 512, 1024, 2048, 4897, 8192, 16384
CLOUD_MISSES = {
    "clock": (99068, 96095, 95332, 95301, 94728, 94041, 91599, 87459, 73569),
    "sieve": (97995, 94924, 94419, 94367, 93958, 93365, 90040, 84376, 69074),
    "lfu": (100395, 98440, 96765, 96482, 95498, 93615, 90040, 84376, 69074),
    "lru-k": (106163, 97059, 96547, 96421, 95388, 93615, 90040, 84376, 69074),
    "lfu-da": (99378, 97457, 95152, 95038, 94129, 93676, 91325, 86392, 74430),
    "gdsf": (98110, 95430, 94681, 94663, 94156, 93629, 91388, 87385, 73205),
    "mru": (110753, 110087, 109437, 109365, 108340, 106408, 100821, 93324, 79879),
    "qdlp": (96132, 94843, 94343, 94323, 93907, 92228, 85066, 80663, 66893),
    "clock2q+": (95965, 95437, 94359, 94340, 93739, 93064, 85597, 78347, 62715),
}
"""Misses on the sample of libCacheSim, of 113,872; objects of one size."""

CHAT_SIZES = 1_000, 10_000, 30_000, 50_000, 100_000
CHAT_HITS = {
    "clock": (12_884, 61_830, 94_944, 102_190, 104_755),
    "sieve": (13_871, 38_013, 79_595, 99_189, 104_755),
    "lfu": (13_871, 38_013, 79_595, 99_189, 104_755),
    "lru-k": (13_871, 38_013, 79_595, 99_189, 104_755),
    "lfu-da": (13_864, 54_433, 94_194, 102_359, 104_924),
    "gdsf": (12_884, 62_627, 94_745, 102_354, 104_755),
    "mru": (779, 12_491, 27_434, 40_064, 70_310),
    "qdlp": (16_045, 57_486, 82_420, 99_097, 104_755),
    "clock2q+": (15_750, 55_969, 75_034, 85_917, 98_521),
}
TOOL_SIZES = 1_000, 10_000, 30_000
TOOL_HITS = {
    "clock": (10_569, 52_722, 76_290),
    "sieve": (4_885, 43_602, 76_290),
    "lfu": (4_885, 43_602, 76_290),
    "lru-k": (4_885, 43_602, 76_290),
    "lfu-da": (7_304, 51_861, 76_077),
    "gdsf": (10_424, 52_153, 76_290),
    "mru": (1_413, 18_990, 56_617),
    "qdlp": (10_654, 52_291, 76_290),
    "clock2q+": (10_561, 51_946, 74_161),
}
"""Hits block by block on the Mooncake traces conversation and synthetic."""

PEERS = {
    "clock": "Clock",
    "sieve": "Sieve",
    "lfu": "LFU",
    "lru-k": "LRUK",
    "lfu-da": "LFUDA",
    "gdsf": "GDSF",
    "clock2q+": "Clock2QPlus",
}
"""Those that are in libCacheSim's Python package."""

SAMPLERS = {"random": ("Random", 0.04), "hyperbolic": ("Hyperbolic", 0.01), "lhd": ("LHD", 0.01)}
"""Those that draw at random there too, each from a stream of its own; and how far hits may differ.
libCacheSim draws from its hash table, bucket by bucket, so not every object has the same chance;
with a sample of 64 that hardly shows, with one draw it does."""

QUICK = settings(deadline=None, max_examples=60)


@pytest.mark.parametrize("name", CLOUD_MISSES)
def test_misses_on_the_libcachesim_sample_are_the_published_ones(shared, name):
    ids = cloud_physics(shared)
    assert tuple(len(ids) - hits(name, ids, size) for size in CLOUD_SIZES) == CLOUD_MISSES[name]


@pytest.mark.parametrize("name", CHAT_HITS)
def test_hits_on_the_mooncake_traces_are_the_published_ones(shared, name):
    for trace, sizes, expected in (("conversation", CHAT_SIZES, CHAT_HITS), ("synthetic", TOOL_SIZES, TOOL_HITS)):
        ids, offsets = mooncake(shared, trace)
        assert tuple(hits(name, ids, size, offsets) for size in sizes) == expected[name], trace


def test_textbook_lfu_da_is_gdsf_of_one_size(shared):
    ids = cloud_physics(shared)[:40_000]
    for size in (3, 128, 1024):
        assert hits("lfu-da", ids, size, edition="textbook") == hits("gdsf", ids, size)


@pytest.fixture(scope="module")
def skewed(tmp_path_factory):
    ids = zipf(200_000, 20_000, seed=42)
    return ids, write_oracle_file(ids, tmp_path_factory.mktemp("zipf") / "zipf.bin")


@pytest.mark.parametrize("name", PEERS)
@pytest.mark.parametrize("capacity", [3, 200, 2_000])
def test_hits_equal_those_of_libcachesim_on_zipf(skewed, name, capacity):
    if name == "lfu-da" and capacity < 200:
        pytest.skip("libCacheSim's LFUDA does not end when no block is left above its age")
    if name == "clock2q+" and capacity < 20:
        pytest.skip("libCacheSim's small queue takes nothing in a cache of fewer than 20 objects")
    ids, file = skewed
    assert hits(name, ids, capacity) == oracle_hits(PEERS[name], file, capacity)


@pytest.mark.parametrize(("bits", "init_freq"), [(2, 0), (3, 2)])
def test_a_clock_with_more_bits_equals_that_of_libcachesim(skewed, bits, init_freq):
    ids, file = skewed
    peer = oracle_hits("Clock", file, 200, n_bit_counter=bits, init_freq=init_freq)
    assert hits("clock", ids, 200, bits=bits, init_freq=init_freq) == peer


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("capacity", [200, 2_000])
def test_hits_of_samplers_are_near_those_of_libcachesim_on_zipf(skewed, name, capacity):
    ids, file = skewed
    peer, band = SAMPLERS[name]
    assert hits(name, ids, capacity) == pytest.approx(oracle_hits(peer, file, capacity), rel=band)


@pytest.mark.parametrize("size", [1_000, 10_000])
def test_lhd_is_near_the_counts_of_libcachesim_before_it_learns(shared, size):
    ids, offsets = mooncake(shared, "conversation")
    expected = {1_000: 12_970, 10_000: 61_178}
    assert hits("lhd", ids, size, offsets) == pytest.approx(expected[size], rel=0.01)


@pytest.fixture(scope="module")
def agents(shared, tmp_path_factory):
    """The first 5 million blocks of the WEKA conversations."""
    trace = merged_trace(shared / "traces/kv-cache-tester/weka_traces_710_rle.jsonl.gz", dense=True)
    lists = trace["block_ids"].combine_chunks()
    offsets = lists.offsets.to_numpy().astype(np.int64)
    offsets = offsets[: np.searchsorted(offsets, 5_000_000, side="right")]
    ids = lists.values.to_numpy()[: offsets[-1]]
    return ids, offsets, write_oracle_file(ids, tmp_path_factory.mktemp("weka") / "weka.bin")


@pytest.mark.slow
@pytest.mark.parametrize("name", PEERS)
@pytest.mark.parametrize("capacity", [10_000, 300_000])
def test_hits_equal_those_of_libcachesim_on_weka(agents, name, capacity):
    ids, offsets, file = agents
    assert hits(name, ids, capacity, offsets) == oracle_hits(PEERS[name], file, capacity)


@pytest.mark.slow
@pytest.mark.parametrize("capacity", [100_000, 300_000])
def test_lhd_that_learned_is_near_that_of_libcachesim_on_weka(agents, capacity):
    ids, offsets, file = agents
    assert hits("lhd", ids, capacity, offsets) == pytest.approx(oracle_hits("LHD", file, capacity), rel=0.03)


MODELS = {
    "mru": lambda context: Ranked(context, lambda model, slot: -model.clock),
    "clock": models.Clock,
    "sieve": models.Sieve,
    "lfu": lambda context: Ranked(context, lambda model, slot: (model.uses[slot], model.clock)),
    "lru-k": lambda context: models.LruK(context, 2),
    "lfu-da": models.LfuDa,
    "hyperbolic": models.Hyperbolic,
}


AGED_PAST_A_PIN = Story(
    4,
    "head-first",
    tuple(
        Step("serve", np.array(keys, dtype=np.uint64))
        for keys in ([2, 7], [2, 7, 23, 70], [2, 7, 22], [2, 7, 23, 70], [1])
    ),
)
"""The fourth request spares its block 70 while LFU-DA's age passes it; the age must go on rising."""


@QUICK
@given(story=stories())
@example(story=AGED_PAST_A_PIN)
@pytest.mark.parametrize("name", MODELS)
def test_does_event_for_event_what_the_naive_model_does(name, story):
    assert play(make(name, story.capacity), story) == play(MODELS[name](PolicyContext(story.capacity)), story)


@QUICK
@given(story=stories(max_capacity=30, max_steps=40), bits=st.integers(1, 3), data=st.data())
def test_a_clock_counts_up_to_what_its_bits_hold(story, bits, data):
    init_freq = data.draw(st.integers(0, 2**bits - 1), label="init_freq")
    model = models.Clock(PolicyContext(story.capacity), 2**bits - 1, init_freq)
    assert play(make("clock", story.capacity, bits=bits, init_freq=init_freq), story) == play(model, story)


@QUICK
@given(story=stories(max_steps=40), k=st.integers(1, 4))
def test_lru_k_goes_by_the_kth_last_use(story, k):
    assert play(make("lru-k", story.capacity, k=k), story) == play(models.LruK(PolicyContext(story.capacity), k), story)


@QUICK
@given(story=stories())
def test_lru_1_is_lru_and_a_clock_whose_counter_never_rises_is_fifo(story):
    assert play(make("lru-k", story.capacity, k=1), story) == play(make("lru", story.capacity), story)
    full = make("clock", story.capacity, bits=1, init_freq=1)
    # Every block gets one chance and no more, used or not.
    assert play(full, story) == play(models.Clock(PolicyContext(story.capacity), 1, 1), story)


@pytest.mark.parametrize(
    ("capacity", "asked", "misses"),
    [
        (2, [0, 1, 1, 0, 2, 0, 2], {"sieve": 4, "lfu": 3, "lru-k": 5}),
        (3, [0, 1, 1, 0, 2, 2, 3, 0], {"sieve": 5, "lfu": 4, "lru-k": 5}),
    ],
)
def test_streams_that_tell_sieve_lfu_and_lru_k_apart(capacity, asked, misses):
    ids = np.array(asked, dtype=np.uint64)
    assert {name: len(ids) - hits(name, ids, capacity) for name in misses} == misses


@pytest.mark.parametrize(
    ("name", "asked", "victims"),
    [
        ("mru", [1, 2, 3, 1, 4, 5], [1, 4]),
        ("clock", [1, 2, 3, 1, 4, 5, 6], [2, 3, 1]),
        ("sieve", [1, 2, 3, 1, 4, 1, 5, 6], [2, 3, 4]),
        ("lfu", [1, 2, 3, 2, 1, 4, 5], [3, 4]),
        ("lru-k", [1, 2, 3, 1, 1, 2, 4, 5, 6], [3, 4, 5]),
        # 3 goes, as old as 4 in worth but older in use; the age is 1 then, so 5 and 6 equal 1 and 2.
        ("gdsf", [1, 2, 3, 1, 2, 4, 5, 6], [3, 4, 1]),
        ("lfu-da", [1, 2, 3, 1, 4, 5], [2, 3]),
    ],
)
def test_victims_of_hand_made_streams(name, asked, victims):
    assert evictions(make(name, 3), [[key] for key in asked]) == victims


def test_a_newcomer_may_be_the_victim_of_gdsf():
    assert evictions(make("gdsf", 1), [[1], [1], [2]]) == [2]


def test_random_gives_every_block_the_same_chance():
    first = [evictions(make("random", 4, seed=seed), [[1, 2, 3, 4], [5]])[0] for seed in range(2_000)]
    counts = np.unique(first, return_counts=True)[1]
    assert len(counts) == 4
    assert ((counts - 500) ** 2 / 500).sum() < 16.3  # chi-square, 3 degrees of freedom, p = 0.001


def test_hyperbolic_looks_at_a_sample_of_many_blocks():
    # Of 1,000 blocks, all as old as can be told apart, the best of a sample is among the oldest.
    victims = evictions(make("hyperbolic", 1_000), [[key] for key in range(1_100)])
    assert np.mean(victims) > 50
    assert np.mean(victims) == pytest.approx(1_100 / 65, rel=3)
    whole = evictions(make("hyperbolic", 1_000, samples=1_000), [[key] for key in range(1_100)])
    assert whole == list(range(100))


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("clock", {"bits": 9}, r"^clock: bits = 9 is not within 1 … 8$"),
        ("clock", {"init_freq": 2}, r"^clock: init_freq = 2 does not fit into 1 bits$"),
        ("clock", {"init_freq": 1_000_000}, r"^clock: init_freq = 1000000 does not fit into 1 bits$"),
        ("lru-k", {"k": 65}, r"^lru-k: k = 65 is not within 1 … 64$"),
        ("clock2q+", {"window": 1.5}, r"^clock2q\+: window = 1.5 is not between 0 and 1$"),
        ("ttl", {"seconds": 1e12}, r"^ttl: seconds = 1e\+12 is not within 0 … 2000000000$"),
    ],
)
def test_parameters_out_of_range_are_refused(name, params, message):
    with pytest.raises(ConfigError, match=message):
        make(name, 10, **params)
