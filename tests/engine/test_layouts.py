"""What holds in every stack of tiers, under random calls: places, lookups, retrieves and the log agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbench import CacheEngine
from kvbench.cache.fold import Fold

CHUNK = 2
LAYOUTS: dict[str, dict[str, Any]] = {
    "one": {"tiers": ["cpu,capacity=5"]},
    "chunks": {"tiers": ["cpu,capacity=3", "disk,capacity=12,chunk=2"]},
    "large chunks": {"tiers": ["cpu,capacity=2", "disk,capacity=12,chunk=3"]},
    "exclusive": {"tiers": ["gpu,capacity=2", "cpu,capacity=6"], "placement": "exclusive"},
    "spill": {"tiers": ["cpu,capacity=2,policy=keep", "disk,capacity=4"], "placement": "spill"},
    "once": {"tiers": ["cpu,capacity=3", "disk,capacity=5"], "walk": "once"},
    "temporary": {"tiers": ["cpu,capacity=4,promotion=temporary", "disk,capacity=9"]},
    "back": {"tiers": ["gpu,capacity=2", "cpu,capacity=3,write=back", "disk,capacity=8,write=back"]},
    "ranks": {"tiers": ["gpu,capacity=3,scope=rank", "cpu,capacity=6"], "tp": 2},
    "shared": {"tiers": ["cpu,capacity=2", "dfs,capacity=7,scope=cluster"], "workers": 2},
    "lmcache": {"preset": "lmcache", "tiers": ["cpu,capacity=4", "disk,capacity=9"], "block_bytes": 100},
    "vllm": {"preset": "vllm", "tiers": ["gpu,capacity=5"]},
    "policies": {"tiers": ["cpu,capacity=4,policy=s3-fifo", "disk,capacity=9,policy=lfu"]},
}
PROMPTS = st.lists(st.integers(0, 2), max_size=7).map(lambda kinds: [token for kind in kinds for token in (kind, 7)])
CALLS = st.lists(
    st.tuples(
        st.sampled_from(
            ["store", "retrieve", "cut", "lease", "unpin", "remove", "pin", "fail", "mend", "freeze", "clear"]
        ),
        PROMPTS,
        st.integers(0, 7),
    ),
    max_size=40,
)


def call(made: CacheEngine, kind: str, prompt: list[int], number: int, leases: list[int]) -> None:
    if kind == "store":
        made.store(prompt, mask=[at >= min(number, len(prompt) // CHUNK) * CHUNK for at in range(len(prompt))])
    elif kind == "retrieve":
        agrees(made, prompt, min(number, len(prompt)))
    elif kind == "cut":
        whole = made.lookup(prompt)
        mask = made.retrieve(prompt, max_fetch=number).mask
        assert int(mask.sum()) == min(whole, number // CHUNK * CHUNK)
    elif kind == "lease":
        leases.append(len(leases))
        found = made.lookup(prompt, pin=True, lookup_id=leases[-1])
        made.store([number] * 6)
        assert int(made.retrieve(prompt).mask.sum()) >= found
    elif kind == "unpin" and leases:
        made.lookup_unpin(leases[number % len(leases)])
    elif kind == "remove":
        before = made.locations(prompt)
        gone = made.remove(prompt)
        after = made.locations(prompt)
        assert gone == CHUNK * sum(bool(was) and not now for was, now in zip(before, after, strict=True))
    elif kind == "pin":
        made.pin(prompt)
        made.unpin(prompt)
    elif kind in ("fail", "mend"):
        made.inject(list(made.used_chunks)[-1], unhealthy=kind == "fail")
    elif kind == "freeze":
        made.freeze(number > 3)
    elif kind == "clear":
        made.clear()


def agrees(made: CacheEngine, prompt: list[int], computed: int) -> None:
    """A retrieve delivers what a lookup found; with what is known of the places, that is the prefix there is."""
    first = computed // CHUNK * CHUNK
    found = made.lookup(prompt, num_computed_tokens=computed)
    mask, tiers = made.retrieve(prompt, num_computed_tokens=computed)
    delivered = max(first, found // CHUNK * CHUNK) if found > computed else first
    assert np.flatnonzero(mask).tolist() == list(range(first, delivered))
    assert sum(tiers.values()) == int(mask.sum())


def log_agrees(made: CacheEngine) -> None:
    fold = Fold()
    for event in made.events:
        source = None if event["source_tier"] is None else (event["source_tier"], event["source_store"])
        fold.event(event["kind"], (event["tier"], event["store"]), event["key"], parent=event["parent"], source=source)
    for level, name in enumerate(made.used_chunks):
        for store in made._pool.core.stores[level]:
            assert set(fold.holdings.get((name, store.store), {})) == set(store.residents())
            store.verify()
    assert made.references == made.leased


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=25, deadline=None)
@given(calls=CALLS)
def test_places_lookups_retrieves_and_the_log_agree(layout: str, calls: list[tuple[str, list[int], int]]) -> None:
    made = CacheEngine(chunk_tokens=CHUNK, keep_events=True, wait_for_room=True, **LAYOUTS[layout])
    engines = [made] if layout != "shared" else [made, made.peer(worker=1)]
    leases: list[list[int]] = [[] for _ in engines]
    for at, (kind, prompt, number) in enumerate(calls):
        mine = at % len(engines)
        call(engines[mine], kind, prompt, number, leases[mine])
        log_agrees(made)
    for each in engines:
        each.close()
    assert made.references == 0


def test_a_segment_that_stands_in_a_prompt_twice_is_fetched_where_it_is_asked_for() -> None:
    made = CacheEngine(tiers=["cpu,capacity=100"], separator=[9])
    made.store([4, 5, 6])
    prompt = [1, 2, 3, 9, 4, 5, 6, 9, 1, 2, 3]
    assert made.locations(prompt) == [(), ("cpu",), ()]
    assert made.lookup(prompt, num_computed_tokens=4) == 7
    assert np.flatnonzero(made.retrieve(prompt, num_computed_tokens=4).mask).tolist() == [4, 5, 6]
    made.store([1, 2, 3])
    assert np.flatnonzero(made.retrieve(prompt, num_computed_tokens=4).mask).tolist() == [4, 5, 6, 8, 9, 10]
    assert made.remove(prompt) == 6
