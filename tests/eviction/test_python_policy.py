"""Policies in plain Python: as good as compiled ones, and unable to corrupt a tier."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench import PolicyError
from kvbench.cache import ORDERS, EventLog, Tier
from kvbench.eviction import PolicyContext, PythonPolicy
from kvbench.eviction.lru import Lru


def array(keys):
    return np.array(keys, dtype=np.uint64)


class PlainLru(PythonPolicy):
    """Least recently used, in a dict that keeps its order."""

    def __init__(self, context):
        self.order = {}

    def touch(self, slots):
        for slot in slots:
            self.order.pop(slot)
            self.order[slot] = None

    def insert(self, slots):
        self.order.update(dict.fromkeys(slots))

    def remove(self, slots):
        for slot in slots:
            del self.order[slot]

    def evict(self, n):
        victims = [slot for slot in self.order if self.evictable(slot)][:n]
        self.remove(victims)
        return victims


@given(
    st.lists(
        st.tuples(st.sampled_from(["serve", "serve", "pin", "remove"]), st.lists(st.integers(0, 30), unique=True)),
        max_size=40,
    ),
    st.integers(1, 20),
)
@pytest.mark.parametrize("order", ORDERS)
def test_lru_in_python_does_event_for_event_what_the_compiled_one_does(order, steps, capacity):
    logs = EventLog(), EventLog()
    policies = Lru, PlainLru
    plain, compiled = (
        Tier(policy(PolicyContext(capacity)), order=order, log=log) for policy, log in zip(policies, logs, strict=True)
    )
    for action, keys in steps:
        results = [getattr(tier, action)(array(keys)) for tier in (plain, compiled)]
        assert results[0] == results[1]
        assert plain.last == compiled.last
        plain.verify()
        compiled.verify()
    assert logs[0].tobytes() == logs[1].tobytes()


class Stubborn(PlainLru):
    """Gives away what it was told to, right or wrong."""

    def evict(self, n):
        return self.answer


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ([0], r"^Stubborn evicted slot 0: it is pinned$"),
        ([3], r"^Stubborn evicted slot 3: it is free$"),
        ([4], r"^Stubborn evicted slot 4: tier gpu has slots 0 to 3$"),
        ([-1], r"^Stubborn evicted slot -1: tier gpu has slots 0 to 3$"),
        ([2**40], r"^Stubborn\.evict\(2\) returned 1099511627776, which is no slot$"),
        (["1"], r"^Stubborn\.evict\(2\) returned '1', which is no slot$"),
        ([1, 1], r"^Stubborn evicted slot 1: it is free$"),
        ([1, 2, 2], r"^Stubborn\.evict\(2\) returned more than 2 slots$"),
        ([1], r"^Stubborn gave up 1 of 2 blocks of tier gpu, of whose 2 blocks 1 are pinned$"),
        ([], r"^Stubborn gave up 0 of 2 blocks of tier gpu, of whose 3 blocks 1 are pinned$"),
    ],
    ids=["pinned", "free", "too large", "negative", "64 bits", "text", "twice", "too many", "too few", "none"],
)
def test_a_victim_that_may_not_go_is_refused_by_name_and_the_account_stays_right(answer, message):
    policy = Stubborn(PolicyContext(4))
    tier = Tier(policy)
    tier.serve(array([10, 11, 12]))
    tier.pin(array([10]))
    policy.answer = answer
    with pytest.raises(PolicyError, match=message):
        tier.serve(array([20, 21, 22]))
    tier.verify()
    assert tier.pinned == 1
    assert 10 in tier.residents()


def test_an_error_in_a_policy_comes_through_as_it_is():
    class Broken(PlainLru):
        def insert(self, slots):
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        Tier(Broken(PolicyContext(4))).serve(array([1]))


@pytest.mark.parametrize("method", ["insert", "remove", "evict"])
def test_a_missing_method_is_named(method):
    partial = type("Partial", (PlainLru,), {method: getattr(PythonPolicy, method)})
    tier = Tier(partial(PolicyContext(1)))

    def use_everything():
        for key in (1, 2, 3):
            tier.serve(array([key]))
        tier.remove(array([3]))

    with pytest.raises(NotImplementedError, match=rf"Partial must define {method}\("):
        use_everything()


def test_a_policy_serves_one_tier_only():
    policy = PlainLru(PolicyContext(2))
    with pytest.raises(PolicyError, match="can be read once the policy serves a tier"):
        policy.refs  # noqa: B018
    Tier(policy)
    assert list(policy.refs) == [0, 0]
    with pytest.raises(PolicyError, match="PlainLru already serves a tier"):
        Tier(policy)


class Hoarder(PlainLru):
    """Keeps every view it was ever given."""

    def __init__(self, context):
        super().__init__(context)
        self.views = []

    def insert(self, slots):
        super().insert(slots)
        self.views.append(slots)


def test_views_that_outlive_their_call_and_their_tier_stay_readable():
    policy = Hoarder(PolicyContext(2_000))
    tier = Tier(policy)
    for size in (3, 300, 1_500):
        tier.serve(array(range(size, 2 * size)))
    refs = policy.refs
    held = [*policy.views, refs]
    assert list(refs).count(1) == tier.used
    del tier, policy
    gc.collect()
    array(range(100_000))  # takes the place of anything freed too early
    assert [len(view) for view in held[:3]] == [3, 297 + 3, 1_500]
    assert all(0 <= slot < 2_000 for view in held[:3] for slot in view)
    assert sum(refs) == 3 + 300 + 1_500
    assert all(view.readonly for view in held)
    with pytest.raises(TypeError):
        refs[0] = 7
