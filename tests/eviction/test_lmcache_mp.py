"""ARC of LMCache's multi-process server: the golden run down to its four lists, and a naive model."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kv_models import told
from policies import evictions, make

from kvbench.cache import EventLog, StackedTier, TierStack
from kvbench.cache.events import EVENT_FIELDS
from kvbench.eviction import PolicyContext, PythonPolicy
from kvbench.testing.stories import play, stories
from kvbench.testing.strategies import requests

CAPACITY = 26
"""The most chunks that the golden run holds."""
NODE = np.dtype([("prev", np.int32), ("next", np.int32)])


class NaiveArc(PythonPolicy):
    """§14.2 of the golden runs, in lists; oldest first. T1 and T2 have slots, B1 and B2 keys."""

    def __init__(self, context):
        self.t1, self.t2, self.b1, self.b2, self.target, self.most = [], [], [], [], 0.0, 0

    def touch(self, slots):
        for slot in slots:
            self.remove([slot])
            self.t2.append(slot)

    def insert(self, slots):
        for slot in slots:
            key, once, often = self.keys[slot], len(self.b1), len(self.b2)
            if key in self.b1:
                self.target = min(self.most, self.target + max(1, often / once))
                self.b1.remove(key)
            elif key in self.b2:
                self.target = max(0, self.target - max(1, once / often))
                self.b2.remove(key)
            self.t1.append(slot)
            self.most = max(self.most, len(self.t1) + len(self.t2))
            self.trim()

    def trim(self):
        while len(self.t1) + len(self.b1) > self.most:
            del self.b1[0]
        while sum(map(len, (self.t1, self.t2, self.b1, self.b2))) > 2 * self.most:
            del (self.b2 or self.b1)[0]

    def remove(self, slots):
        for slot in slots:
            (self.t1 if slot in self.t1 else self.t2).remove(slot)

    def evict(self, n):
        victims = []
        while len(victims) < n:
            once, often = ([slot for slot in slots if self.evictable(slot)] for slots in (self.t1, self.t2))
            if not once and not often:
                break
            from_once = bool(once) and (len(self.t1) >= int(self.target) or not often)
            victims.append((once if from_once else often)[0])
            (self.b1 if from_once else self.b2).append(self.keys[victims[-1]])
            self.remove(victims[-1:])
        self.trim()
        return victims


class Server:
    """L1 of the server under a policy: from 20 chunks on, a fifth leaves after a request."""

    def __init__(self, policy):
        self.policy, self.log, self.served = policy, EventLog(), 0
        self.l1 = StackedTier(policy, order="tail-first", log=self.log, touch_on="lookup", high=20, ratio=0.2)
        self.stack = TierStack([[self.l1]])

    def serve(self, chain):
        """The prefix hit, the keys that were stored, and those that went."""
        before = self.log.size
        hit = self.stack.serve(np.array(chain, dtype=np.uint64), request=self.served, time_ns=self.served)
        self.served += 1
        events = np.frombuffer(self.log.tobytes(), dtype=np.dtype(list(EVENT_FIELDS)))[before:]
        return hit, events["key"][events["kind"] == 0].tolist(), events["key"][events["kind"] == 1].tolist()

    def keys_of(self, t1, t2):
        """The keys in these slots, which are all that are filled."""
        blocks = np.zeros(self.l1.used, dtype=np.uint64)
        self.l1.read_blocks(blocks, np.zeros_like(blocks), np.zeros(len(blocks), dtype=np.int32))
        key_of = dict(zip(sorted([*t1, *t2]), blocks.tolist(), strict=True))
        return [[key_of[slot] for slot in slots] for slots in (t1, t2)]


def oldest_first(nodes, sentinel):
    node = int(nodes[sentinel]["prev"])
    while node != sentinel:
        yield node
        node = int(nodes[node]["prev"])


def lists_of(server):
    """T1, T2, B1, B2, the most blocks held and the target, as they lie in a snapshot of the policy:
    queues, the queue of each slot, five pieces for each ghost list, and the numbers."""
    pieces = server.policy.snapshot()
    nodes = np.frombuffer(pieces[0], NODE)
    resident = server.keys_of(*(list(oldest_first(nodes, CAPACITY + queue)) for queue in (0, 1)))
    ghosts = []
    for first in (2, 7):
        keys = np.frombuffer(pieces[first + 1], np.uint64)
        ghosts.append([int(keys[entry]) for entry in oldest_first(np.frombuffer(pieces[first], NODE), 0)])
    target, *sizes, most = np.frombuffer(pieces[12], np.dtype("f8,i8,i8,i8"))[0].tolist()
    assert sizes == [len(keys) for keys in resident]
    return *resident, *ghosts, most, target


@pytest.fixture
def golden(shared):
    return json.loads((shared / "golden/golden_policies.json").read_text())["lmcache_mp_ARC"]


@pytest.mark.parametrize("which", ["compiled", "model"])
def test_arc_gives_the_golden_hits_victims_and_lists(golden, which):
    policy = make("lmcache-mp-arc", CAPACITY) if which == "compiled" else NaiveArc(PolicyContext(CAPACITY))
    server = Server(policy)
    for step in golden["steps"]:
        assert server.serve(step["chain"]) == (step["hit"], step["created"], step.get("evicted_ratio_0.2", []))
        assert server.l1.used == step["resident"]
    if which == "model":
        found = *server.keys_of(policy.t1, policy.t2), policy.b1, policy.b2, policy.most, policy.target
    else:
        found = lists_of(server)
    names = "t1", "t2", "b1", "b2", "capacity", "target_t1_size"
    assert dict(zip(names, found, strict=True)) == {**golden["final"], "target_t1_size": pytest.approx(7.1)}


def test_arc_goes_on_from_the_golden_lists_as_the_model_does(golden):
    """The same kind of stream, 3,000 requests on."""
    servers = Server(make("lmcache-mp-arc", CAPACITY)), Server(NaiveArc(PolicyContext(CAPACITY)))
    random = np.random.default_rng(11)
    chains = [step["chain"] for step in golden["steps"]]
    for base, length in zip(random.integers(0, 12, 3_000) * 10, random.integers(2, 7, 3_000), strict=True):
        chains.append(list(range(base, base + length)))
    runs = [[server.serve(chain) for chain in chains] for server in servers]
    assert runs[0] == runs[1]


@settings(deadline=None, max_examples=150)
@given(story=stories(max_steps=40))
def test_arc_does_event_for_event_what_the_model_does(story):
    model = NaiveArc(PolicyContext(story.capacity))
    assert play(make("lmcache-mp-arc", story.capacity), story) == play(model, story)


@settings(deadline=None, max_examples=60)
@given(asked=requests(max_requests=120, max_blocks=6), capacity=st.integers(1, 30))
def test_arc_does_what_the_model_does_in_long_runs(asked, capacity):
    policies = make("lmcache-mp-arc", capacity), NaiveArc(PolicyContext(capacity))
    (events, hits), (expected, expected_hits) = (told(policy, asked) for policy in policies)
    assert events == expected
    assert hits.tolist() == expected_hits.tolist()


def test_a_returning_key_enters_t1_and_a_used_one_t2():
    """1 and 2 are used; 3 goes at 5, and its return, for which 4 goes, is no use: 5 and 3 go next."""
    stream = [[1], [2], [1], [2], [3], [4], [5], [3], [6], [7]]
    assert evictions(make("lmcache-mp-arc", 4), stream) == [3, 4, 5, 3]
