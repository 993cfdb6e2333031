"""decay-lfu keeps the contract of eviction policies, and does what it says."""

import numpy as np

from kvbench.cache import Tier
from kvbench.eviction import PolicyContext
from kvbench.testing import EvictionPolicyContract
from kvbench_example_numpy import DecayLfu


class TestDecayLfu(EvictionPolicyContract):
    spec_name = "decay-lfu"


def test_block_used_often_outlives_one_used_once() -> None:
    tier = Tier(DecayLfu(PolicyContext(2)))
    for key in (1, 1, 1, 2, 3):
        tier.serve(np.array([key], dtype=np.uint64))
    assert sorted(tier.residents()) == [1, 3]
