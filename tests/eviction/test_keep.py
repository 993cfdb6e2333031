"""Keep never evicts: a full tier stores no more."""

from __future__ import annotations

import numpy as np
import pytest
from policies import make

from kvbench.cache import ORDERS, Tier


@pytest.mark.parametrize("order", sorted(ORDERS))
def test_a_full_tier_keeps_what_it_has_and_refuses_the_rest(order: str) -> None:
    tier = Tier(make("keep", 4), order=order)
    tier.serve(np.array([1, 2, 3], dtype=np.uint64))
    assert tier.serve(np.array([1, 2, 5, 6, 7], dtype=np.uint64)) == 2
    assert sorted(tier.residents()) == [1, 2, 3, 5]
    assert tier.last["truncated"] == 2
    tier.serve(np.array([8], dtype=np.uint64))
    assert sorted(tier.residents()) == [1, 2, 3, 5]
