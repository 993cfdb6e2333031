"""never-hit-first keeps the contract of eviction policies, and does what it says."""

import numpy as np
from kvbench_example_cython.policy import NeverHitFirst

from kvbench.cache import Tier
from kvbench.eviction import PolicyContext
from kvbench.testing import EvictionPolicyContract


class TestNeverHitFirst(EvictionPolicyContract):
    spec_name = "never-hit-first"


def test_block_that_was_hit_outlives_older_and_newer_ones_that_were_not() -> None:
    tier = Tier(NeverHitFirst(PolicyContext(3)))
    for key in (1, 2, 1, 3, 4, 5):
        tier.serve(np.array([key], dtype=np.uint64))
    assert sorted(tier.residents()) == [1, 4, 5]
