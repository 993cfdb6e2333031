"""two-touch keeps the contract of eviction policies, and does what it says."""

import numpy as np

from kvbench.cache import Tier
from kvbench.eviction import PolicyContext
from kvbench.testing import EvictionPolicyContract
from kvbench_example_policy import TwoTouch


class TestTwoTouch(EvictionPolicyContract):
    spec_name = "two-touch"


def test_prompt_that_was_used_again_survives_a_long_one() -> None:
    """LRU would have evicted blocks 1 and 2; two-touch evicts the long prompt's own kind."""
    tier = Tier(TwoTouch(PolicyContext(8)))
    used_again = np.array([1, 2], dtype=np.uint64)
    tier.serve(used_again)
    tier.serve(used_again)
    for first in (100, 200, 300):
        tier.serve(np.arange(first, first + 6, dtype=np.uint64))
    assert tier.probe(used_again) == 2
