"""What routers know of load when requests end by the clock (semantics §8.3, OP-41)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.errors import ConfigError
from kvbench.routeconfig import LoadConfig
from kvbench.routing import LoadView
from kvbench.routing.clockledger import ClockLedger
from kvbench.units import AT_ONCE, NEVER, Lag

WORKERS, ROUTERS = 2, 3
COUNTED = ("requests", "tokens", "blocks", "prefilling", "prefill_blocks")
ASSIGNED = ("assigned_requests", "assigned_tokens", "assigned_blocks")


class Model:
    """A list of all that happened: its time, the number of the dispatch before it, the change, the request."""

    def __init__(self, sync: Lag, period: Lag) -> None:
        self.sync, self.period = sync, period
        self.facts: list[tuple[int, int, str, dict[str, int]]] = []
        self.dispatched: list[int] = []

    def has_heard(self, fact: Any, router: int, number: int, now: int) -> bool:
        time, last, _, request = fact
        if request["router"] == router or self.sync.length == 0:
            return True
        if self.sync.ns is not None:
            return now - time >= self.sync.ns
        return self.sync.requests is not None and number - last > self.sync.requests

    def figures(self, router: int, number: int, now: int) -> dict[str, list[int]]:
        """What a router knows as it is to decide on dispatch ``number``."""
        seen = summed([fact for fact in self.facts if self.has_heard(fact, router, number, now)])
        facts, since = self.facts, number
        if self.period.ns:
            begun = now // self.period.ns * self.period.ns
            facts = [fact for fact in facts if fact[0] < begun]
            since = next((at for at, time in enumerate(self.dispatched) if time >= begun), number)
        elif self.period.requests:
            since = number // self.period.requests * self.period.requests
            facts = [fact for fact in facts if fact[1] < since]
        truth = summed(facts)
        running = [all_ - waiting for all_, waiting in zip(truth["requests"], truth["prefilling"], strict=True)]
        told = {"waiting": truth["prefilling"], "running": running, "used_blocks": truth["blocks"]}
        return {**seen, **told, "age": [number - since]}


def summed(facts: list[Any]) -> dict[str, list[int]]:
    found = {name: [0] * WORKERS for name in (*COUNTED, *ASSIGNED)}
    for _, _, kind, request in facts:
        sizes = {"requests": 1, "tokens": request["tokens"], "blocks": request["blocks"]}
        sign = -1 if kind == "end" else 1
        changes = {name: sign * size for name, size in sizes.items() if kind != "prefill end"}
        if kind == "start":
            changes |= {f"assigned_{name}": size for name, size in sizes.items()}
        if kind != "end":
            sign = 1 if kind == "start" else -1
            changes |= {"prefilling": sign, "prefill_blocks": sign * request["fresh"]}
        for name, change in changes.items():
            found[name][request["worker"]] += change
    return found


def known(view: LoadView) -> dict[str, list[int]]:
    names = (*COUNTED, *ASSIGNED, "waiting", "running", "used_blocks")
    return {**{name: list(memoryview(getattr(view, name))) for name in names}, "age": [view.age_requests]}


sizes = st.fixed_dictionaries({"tokens": st.integers(0, 99), "blocks": st.integers(0, 9), "fresh": st.integers(0, 9)})
starts = st.tuples(st.just("start"), st.integers(0, ROUTERS - 1), st.integers(0, WORKERS - 1), sizes)
ends = st.tuples(st.sampled_from(["prefill end", "end"]), st.integers(0, 99), st.none(), st.none())
happenings = st.lists(st.tuples(st.integers(0, 5), st.one_of(starts, ends)), max_size=60)
syncs = st.sampled_from([AT_ONCE, NEVER, Lag(requests=1), Lag(requests=4), Lag(ns=0), Lag(ns=3), Lag(ns=20)])
periods = st.sampled_from([AT_ONCE, Lag(requests=3), Lag(ns=1), Lag(ns=7)])


@given(happenings, syncs, periods)
def test_each_router_knows_what_it_has_seen_and_heard_of_by_then(told: Any, sync: Lag, period: Lag) -> None:
    views = [LoadView(WORKERS) for _ in range(ROUTERS)]
    ledger = ClockLedger(views, sync=sync, period=period)
    model = Model(sync, period)
    flying: list[tuple[int, dict[str, int]]] = []
    now = 0
    closing = [(1, ("start", router, 0, {"tokens": 1, "blocks": 1, "fresh": 1})) for router in range(ROUTERS)]
    for passed, (kind, which, worker, size) in [*told, *closing]:
        now += passed
        number = len(model.dispatched)
        if kind == "start":
            model.dispatched.append(now)
            ledger.look(views[which], number, now)
            assert known(views[which]) == model.figures(which, number, now)
            handle = ledger.send(views[which], number, now, worker=worker, **size)
            assert handle not in [each for each, _ in flying]
            flying.append((handle, {"router": which, "worker": worker, "prefilling": 1, **size}))
            model.facts.append((now, number, "start", flying[-1][1]))
        elif flying:
            handle, request = flying[which % len(flying)]
            if request["prefilling"]:
                model.facts.append((now, number - 1, "prefill end", request))
                request["prefilling"] = 0
            if kind == "end":
                model.facts.append((now, number - 1, "end", request))
                flying.pop(which % len(flying))
                ledger.end(handle, now)
            else:
                ledger.end_prefill(handle, now)
    assert ledger.in_flight == len(flying)


@pytest.mark.parametrize("sync", [Lag(ns=10), Lag(requests=2), NEVER])
def test_a_router_that_sends_nothing_more_takes_no_memory(sync: Lag) -> None:
    views = [LoadView(WORKERS) for _ in range(ROUTERS)]
    ledger = ClockLedger(views, sync=sync, period=AT_ONCE)
    flying: list[int] = []
    for number in range(5_000):
        view = views[number % (ROUTERS - 1)]
        ledger.look(view, number, number)
        flying.append(ledger.send(view, number, number, worker=0, tokens=1, blocks=1, fresh=1))
        if len(flying) > 4:
            ledger.end(flying.pop(0), number)
    assert ledger.kept == ClockLedger(views, sync=sync, period=AT_ONCE).kept
    assert max(flying) < 8


def test_a_handle_is_good_until_its_request_ends() -> None:
    view = LoadView(WORKERS)
    ledger = ClockLedger([view], sync=NEVER, period=AT_ONCE)
    handle = ledger.send(view, 0, 0, worker=1, tokens=5, blocks=2, fresh=2)
    ledger.end(handle, 3)
    for tell in (ledger.end, ledger.end_prefill):
        with pytest.raises(ValueError, match=f"handle {handle}"):
            tell(handle, 4)
    with pytest.raises(ValueError, match="handle -1"):
        ledger.end(-1, 4)


def test_a_window_means_nothing_where_the_clock_says_when_requests_end() -> None:
    LoadConfig(period="1s").check(1, timed=True)
    for setting in ({"window": 5}, {"prefill_share": 0.5}):
        with pytest.raises(ConfigError, match=f"{next(iter(setting))} has no effect with --compute"):
            LoadConfig(**setting).check(1, timed=True)
