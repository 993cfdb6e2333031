"""The block tables behave like a dict, whatever the keys."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.cache import Tier
from kvbench.errors import PluginError
from kvbench.eviction import PolicyContext
from kvbench.eviction.lru import Lru
from tests.hashing import mix64, unmix64

M = 2**64 - 1


def array(keys):
    return np.array(keys, dtype=np.uint64)


# The first table has 1024 places; a hash's top 10 bits choose one. Few places, the last and the
# first among them, make long clusters that wrap around; equal upper 32 bits make false matches.
homes = st.sampled_from([0, 1, 2, 1020, 1022, 1023])
clashing = st.builds(lambda home, low: unmix64(home << 54 | low), homes, st.integers(0, 12) | st.just(1 << 33))
keys = clashing | st.sampled_from([0, 1, M, M - 1, 1 << 63]) | st.integers(0, 15).map(lambda high: high << 60)


@given(st.integers(0, M))
def test_the_mix64_this_test_can_be_turned_around(key):
    assert unmix64(mix64(key)) == key


@given(st.lists(st.tuples(st.booleans(), st.lists(keys, max_size=12, unique=True)), max_size=60))
def test_clashing_keys_come_and_go_as_in_a_dict(steps):
    tier, model = Tier(), {}
    for storing, some in steps:
        if storing:
            assert tier.serve(array(some)) == [*(key in model for key in some), False].index(False)
            model.update(dict.fromkeys(some))
        else:
            assert tier.remove(array(some)) == sum(key in model for key in some)
            for key in some:
                model.pop(key, None)
        tier.verify()
        assert set(tier.residents()) == set(model)
        assert all(tier.probe(array([key])) == (key in model) for key in some)


@pytest.mark.parametrize("gone", range(10))
def test_a_run_of_neighbouring_slots_ends_where_one_was_emptied(gone):
    tier, prompt = Tier(), array(range(100, 110))
    tier.serve(prompt)
    tier.remove(prompt[gone : gone + 1])
    assert tier.serve(prompt) == gone
    assert tier.last["resident"] == 9
    assert tier.serve(prompt) == 10


def test_a_cluster_that_wraps_around_closes_every_gap_of_a_removal():
    cluster = [unmix64(1023 << 54 | low << 32) for low in range(1, 40)]
    for victim in cluster:
        tier = Tier()
        tier.serve(array(cluster))
        tier.remove(array([victim]))
        left = [key for key in cluster if key != victim]
        assert tier.probe(array(left)) == len(left)
        assert tier.probe(array([victim])) == 0


@pytest.mark.parametrize("dense", [True, False], ids=["dense", "hash"])
def test_a_table_grows_and_is_emptied_without_losing_a_key(dense):
    random = np.random.default_rng(5)
    all_keys = random.permutation(60_000).astype(np.uint64) if dense else random.integers(0, M, 60_000, np.uint64)
    tier = Tier(dense=dense)
    for part in np.split(all_keys, 60):
        assert tier.serve(part) == 0
    gone, kept = all_keys[::3].copy(), np.setdiff1d(all_keys, all_keys[::3])
    assert tier.remove(gone) == len(gone)
    tier.verify()
    assert tier.probe(kept) == len(kept)
    assert not any(tier.probe(gone[i : i + 1]) for i in range(0, len(gone), 50))
    assert tier.serve(gone) == 0
    assert tier.probe(all_keys) == len(all_keys)
    assert tier.used == len(all_keys)


@pytest.mark.parametrize("dense", [True, False], ids=["direct", "hash"])
@pytest.mark.parametrize("order", ["tail-first", "access"])
def test_key_that_stands_twice_in_one_request_is_refused(dense: bool, order: str) -> None:
    tier = Tier(Lru(PolicyContext(8)), order=order, dense=dense)
    with pytest.raises(PluginError, match="key 5 stands twice in one request"):
        tier.serve(np.array([4, 5, 6, 5], dtype=np.uint64))
