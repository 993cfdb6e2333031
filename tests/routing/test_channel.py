"""What late, lost and guessed knowledge costs, over whole replays (semantics §8.3, §8.4)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvbench
from kvbench.config import load_config
from kvbench.errors import ConfigError
from kvbench.plugins import Distribution, load_registry
from kvbench.replays.engine import Engine
from kvbench.replays.plan import make_plan
from kvbench.routers import Router
from kvbench.trace.reader import open_trace

CLUSTER = {"workers": 4, "router": "max-prefix", "capacity": 1_000}
SYNTHETIC = {"workers": 4, "router": "max-prefix", "capacity": 2_000}


def dispatcher_after(trace, **given_settings):
    """The routers at the end of a replay, once everything has been delivered."""
    opened = open_trace(trace)
    plan = make_plan(load_config(None, given_settings), load_registry(autoload=False), opened)
    engine = Engine(plan, opened)
    for _ in engine.run():
        pass
    dispatcher = engine.core.dispatcher
    for view in dispatcher.views:
        if view.channel is not None:
            view.channel.flush()
    return dispatcher


def divergence(dispatcher):
    return [(view.index.beyond(dispatcher.truth), dispatcher.truth.beyond(view.index)) for view in dispatcher.views]


rows = st.lists(st.lists(st.integers(0, 25), min_size=1, max_size=8, unique=True), min_size=1, max_size=60)
lags = st.sampled_from(["0", "1", "7", "3ns", "20ns"])
TIERED = ["gpu,capacity=6", "cpu,capacity=12", "pool,capacity=20,scope=cluster"]


@settings(max_examples=80)
@given(
    rows, lags, lags, st.sampled_from([0, 1, 5]), lags, st.sampled_from([0.0, 0.4]), st.booleans(), st.integers(1, 3)
)
def test_the_index_is_the_true_state_once_all_has_been_delivered(
    make_trace, asked, coalesce, delay, batch, cycle, duplication, tiered, routers
):
    """Semantics §13, with nothing lost, for several routers and tiers, one of them shared."""
    channel = {"coalesce": coalesce, "delay": delay, "batch": batch, "cycle": cycle, "duplication": duplication}
    where = {"tiers": TIERED} if tiered else {"capacity": 12}
    dispatcher = dispatcher_after(
        make_trace(asked), workers=3, router="random", routers=routers, event_channel=channel, **where
    )
    assert divergence(dispatcher) == [(0, 0)] * routers
    for view in dispatcher.views:
        if view.channel is not None:
            assert view.channel.under_way == view.channel.feed.gaps == view.index.unmatched == 0


@settings(max_examples=30)
@given(rows, st.integers(0, 40), st.integers(0, 2), lags)
def test_a_restart_is_detected_and_leaves_a_true_index(make_trace, tmp_path_factory, asked, at, worker, coalesce):
    """The events of the life before that were not sent are gone with it."""
    plan = tmp_path_factory.mktemp("faults") / "plan.toml"
    where = f'kind = "restart"\nfrom_request = {at}\nworker = {worker}'
    plan.write_text("\n".join(f'[[fault]]\n{where}\ntier = "{tier}"' for tier in ("gpu", "cpu")))
    dispatcher = dispatcher_after(
        make_trace(asked),
        workers=3,
        router="round-robin",
        tiers=["gpu,capacity=6", "cpu,capacity=12"],
        faults=str(plan),
        event_channel={"coalesce": coalesce, "duplication": 0.2},
    )
    assert divergence(dispatcher) == [(0, 0)]
    assert dispatcher.views[0].channel.feed.restarts == (at < len(asked))


@settings(max_examples=60)
@given(rows, st.sampled_from([0.0, 0.2]), st.sampled_from([0.0, 0.3]), st.sampled_from([0.0, 0.3]), st.integers(0, 9))
def test_every_event_is_accounted_for(make_trace, asked, loss, duplication, reorder, seed):
    """Events sent = applied + lost; what arrives twice is dropped; what is missing was lost, or is late."""
    channel = {"loss": loss, "duplication": duplication, "reorder": reorder, "delay": 1}
    where = {"workers": 3, "router": "random", "capacity": 9, "seed": seed}
    dispatcher = dispatcher_after(make_trace(asked), event_channel=channel, **where)
    view = dispatcher.views[0]
    if view.channel is None:
        return
    sent, feed = view.channel, view.channel.feed
    exact = dispatcher_after(
        make_trace(asked), workers=3, router="random", capacity=9, event_channel="delay=1", seed=seed
    )
    assert feed.applied + sent.lost_events == exact.views[0].channel.feed.applied
    assert feed.missing <= sent.lost_events
    assert (feed.duplicates > 0) == (sent.duplicated_messages > 0)
    assert feed.late == 0 or sent.reordered_messages > 0
    if not loss:
        assert feed.missing == sent.lost_messages == 0


def test_an_index_that_hears_late_delivers_less_and_at_once_delivers_all(mooncake):
    """OP-42: the cost of staleness is in the result; delay 0 gives what the oracle gives."""
    trace = mooncake("synthetic")
    oracle = kvbench.replay(trace, index="oracle", **SYNTHETIC).summary
    at_once = kvbench.replay(trace, event_channel="coalesce=0,delay=0", **SYNTHETIC).summary
    assert at_once == oracle
    assert oracle["routing"]["stale_tokens"] == oracle["routing"]["unforeseen_tokens"] == 0
    late = kvbench.replay(trace, event_channel="coalesce=30s", **SYNTHETIC).summary
    assert late["routing"]["unforeseen_tokens"] + late["routing"]["stale_tokens"] > 0
    assert late["routing"]["routed_away_tokens"] > oracle["routing"]["routed_away_tokens"]


def test_events_are_read_a_batch_a_cycle(make_trace):
    """OP-43: with batch 64 and 1,000 pending events, 16 cycles."""
    trace = make_trace([list(range(1_000)), *[[2_000]] * 40])
    dispatcher = dispatcher_after(trace, workers=2, router="round-robin", event_channel="batch=64,cycle=1")
    result = kvbench.replay(trace, workers=2, router="round-robin", event_channel="batch=64,cycle=1")
    assert result.summary["routing"]["index"]["cycles"] == 16
    assert result.summary["routing"]["index"]["events_applied"] == 1_002
    assert dispatcher.views[0].channel.cycles == 16


@pytest.mark.parametrize("loss", [0, 0.01, 0.1])
def test_lost_events_leave_phantoms_that_are_reported(mooncake, loss):
    """G10: none without loss; the gaps are those of the messages that were lost."""
    channel = {"loss": loss, "duplication": 0.01}
    routing = kvbench.replay(mooncake("synthetic"), event_channel=channel, **SYNTHETIC).summary["routing"]
    index = routing["index"]
    assert (index["phantom_blocks"] > 100) == (index["stale_sources"] > 0) == (index["gaps"] > 0) == bool(loss)
    assert index["gaps"] <= index["lost_messages"]
    assert index["missing"] <= index["lost_events"]
    assert (routing["stale_tokens"] > 0) == bool(loss)
    assert index["lost_messages"] == pytest.approx(loss * index["messages"], rel=0.5)


def test_the_same_seed_loses_the_same_messages(make_trace):
    trace = make_trace([[i % 7, i % 3 + 10] for i in range(200)])
    settings = {"workers": 3, "capacity": 8, "event_channel": "loss=0.2,reorder=0.1,duplication=0.1"}
    first, again, other = (kvbench.replay(trace, seed=seed, **settings).summary for seed in (1, 1, 2))
    assert first == again != other


def test_routers_that_do_not_see_each_other_predict_less(mooncake):
    """G06: an approximate index knows its own router's decisions alone, so several routers send equal prompts
    to different workers."""
    trace = mooncake("synthetic")
    alone, several = (
        kvbench.replay(trace, index="approximate,ttl=1h", routers=routers, **SYNTHETIC).rates["token"]
        for routers in (1, 8)
    )
    assert several < alone - 0.05


def test_load_that_routers_hear_of_late_makes_them_choose_alike(make_trace):
    """G06, dynamo #589: three routers, each of which thinks that nothing was sent; with sync at once they know."""
    registry = load_registry([(LeastPlugin(), Distribution("plugin", "1"))], autoload=False)
    trace = make_trace([[i] for i in range(120)])

    def spread(**load):
        settings = {"workers": 6, "router": "least", "routers": 3, "load": {"window": 5, **load}, "registry": registry}
        chosen = kvbench.replay(trace, keep_requests=True, **settings).requests["worker"].to_pylist()
        return min(len(set(chosen[at : at + 6])) for at in range(len(chosen) - 6))

    assert spread(sync=0) == 6
    assert spread() < 4


@pytest.mark.parametrize(("capacity", "sign"), [(100, -1), (100_000, 1)])
def test_an_approximate_index_of_the_wrong_size_predicts_wrongly(mooncake, capacity, sign):
    """G14: smaller than the caches it predicts too little, larger too much; at the right size it is nearly right."""
    trace = mooncake("synthetic")
    summary = kvbench.replay(trace, index=f"approximate,capacity={capacity}", **SYNTHETIC).summary
    routing = summary["routing"]
    assert sign * (routing["predicted_tokens"] - routing["delivered_tokens"]) > 0.1 * routing["delivered_tokens"]
    for each in summary["workers"]["each"]:
        assert each["requests"] == 0 or sign * (each["predicted_tokens"] - each["hit_tokens"]) > 0
    right = kvbench.replay(trace, index=f"approximate,capacity={SYNTHETIC['capacity']}", **SYNTHETIC).summary["routing"]
    assert right["predicted_tokens"] == right["delivered_tokens"]


def test_predictions_fill_the_gap_until_the_events_come(make_trace):
    trace = make_trace([[i // 2 % 9] for i in range(400)])
    settings = {"workers": 4, "event_channel": "coalesce=5"}
    late = kvbench.replay(trace, **settings).summary["routing"]
    predicted = kvbench.replay(trace, index="predictive,ttl=50", **settings).summary["routing"]
    assert predicted["routed_away_tokens"] < late["routed_away_tokens"]
    assert predicted["unforeseen_tokens"] < late["unforeseen_tokens"]


def test_a_prediction_is_forgotten_when_its_time_is_over(make_trace):
    """Worker 0 gets the first request; nothing else is known of it."""
    trace = make_trace([[1], [2], [1], [3], [4], [5], [1]])
    settings = {"workers": 2, "router": "max-prefix,fallback=round-robin", "keep_requests": True}
    result = kvbench.replay(trace, index="approximate,ttl=2", **settings)
    assert result.requests["predicted_blocks"].to_pylist() == [0, 0, 1, 0, 0, 0, 0]
    result = kvbench.replay(trace, index="approximate,ttl=6ns", **settings)
    assert result.requests["predicted_blocks"].to_pylist() == [0, 0, 1, 0, 0, 0, 1]


def test_each_request_has_best_predicted_and_delivered_tokens(make_trace):
    """G15: three token counts; their differences add up to what the summary says."""
    trace = make_trace([[i % 5, 10 + i % 7] for i in range(300)], partial=[i % 10 for i in range(300)])
    result = kvbench.replay(trace, workers=3, router="random", capacity=4, event_channel="loss=0.2", keep_requests=True)
    best, predicted, hit = (result.requests[f"{name}_tokens"].to_numpy() for name in ("best", "predicted", "hit"))
    routing = result.summary["routing"]
    assert (best >= hit).all()
    assert routing["routed_away_tokens"] == (best - hit).sum() > 0
    assert routing["stale_tokens"] == (predicted - hit).clip(0).sum() > 0
    assert routing["unforeseen_tokens"] == (hit - predicted).clip(0).sum() > 0
    assert routing["best_tokens"] - routing["routed_away_tokens"] == routing["delivered_tokens"]


def test_figures_are_published_from_time_to_time(make_trace):
    """OP-41, semantics §8.3: between publications a router sees the workers' old figures, and knows how old."""
    registry = load_registry([(LeastPlugin(), Distribution("plugin", "1"))], autoload=False)
    Published.shown = []
    trace = make_trace([[i] for i in range(8)])
    kvbench.replay(trace, workers=2, router="published", load={"period": 4}, registry=registry)
    assert [age for age, _ in Published.shown] == [0, 1, 2, 3, 0, 1, 2, 3]
    assert [waiting for _, waiting in Published.shown] == [0, 0, 0, 0, 4, 4, 4, 4]


class Published(Router):
    """Goes round, and keeps what the workers have published."""

    shown: list[tuple[int, int]] = []  # noqa: RUF012

    def choose(self, request):
        self.shown.append((self.known.age_requests, int(self.known.waiting.sum() + self.known.running.sum())))
        return request.number % self.workers


class Least(Router):
    """The fewest requests in flight, the first of equal ones."""

    def __init__(self, context):
        super().__init__(context, ties="first")

    def choose(self, request):
        return self.ties.lowest(self.known.requests)


class LeastPlugin:
    @kvbench.hookimpl
    def kvbench_router_policies(self):
        yield kvbench.RouterPolicySpec("least", Least, "fewest requests")
        yield kvbench.RouterPolicySpec("published", Published, "in turn")


@pytest.mark.parametrize(
    ("given_settings", "message"),
    [
        ({"workers": 1, "index": "oracle"}, "--index has no effect with one worker"),
        ({"workers": 1, "routers": 2}, "--routers has no effect with one worker"),
        (
            {"event_channel": "delay=1", "index": "approximate"},
            "--event-channel has no effect with --index approximate",
        ),
        ({"index": "events,ttl=1s"}, "ttl goes with approximate or predictive"),
        ({"index": "approximate,ttl=1s,capacity=10"}, "give one of them"),
        ({"index": "approximate,capacity=10%"}, "no number of blocks"),
        ({"index": "nearly"}, "nearly"),
        ({"event_channel": "loss=1.5"}, "loss = 1.5 must be a share"),
        ({"event_channel": "delay=5parsecs"}, "parsecs"),
        ({"event_channel": "hurry=1"}, "unknown key 'hurry'"),
        ({"event_channel": "loss=much"}, "loss=much: loss = 'much' must be a number"),
        ({"load": "sync=0"}, "sync has no effect with one router"),
        ({"routers": 0}, "--routers = 0"),
        ({"index": "approximate,ttl=0s"}, "ttl = 0s keeps nothing"),
        ({"event_channel": "delay=never"}, "delay = never must be a number of requests, or a time"),
        ({"router": "aibrix-preble,window_s=0"}, "window_s = '0' is below"),
        ({"router": "aibrix-vtc,window_s=0"}, "window_s = '0' is below"),
        ({"router": "aibrix-vtc,min_tokens=9000"}, "min_tokens = 9000 is above max_tokens = 8000"),
        ({"router": "session-sticky"}, "session-sticky needs session_id, which"),
        ({"router": "consistent-hash,by=session"}, "consistent-hash: by = session needs session_id, which"),
    ],
)
def test_a_setting_that_is_wrong_or_has_no_effect_is_refused(make_trace, given_settings, message):
    with pytest.raises(ConfigError, match=message):
        kvbench.replay(make_trace([[1]]), **{"workers": 2, **given_settings})


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('[index]\nmode = "evnts"', "--index: unknown mode 'evnts'; did you mean 'events'?"),
        ("[index]\nmode = 3", "--index: mode = 3 must be events or approximate or predictive or oracle"),
        ("[index]\nttl = [1]", "--index: ttl = [1] must be a whole number or a text"),
        ("index = 3", "--index = 3 must be a table, or a text of the form key=value,…"),
        ("[event_channel]\ndely = 3", "--event-channel: unknown key 'dely'; did you mean 'delay'?"),
        ('[event_channel]\nloss = "0.1"', "--event-channel: loss = '0.1' must be a number"),
        ("[event_channel]\nbatch = 1.5", "--event-channel: batch = 1.5 must be a whole number"),
        ("[load]\nwindow = true", "--load: window = True must be a whole number or a text"),
    ],
)
def test_a_table_of_a_run_file_that_is_wrong_names_the_key_and_what_is_allowed(tmp_path, table, message):
    path = tmp_path / "run.toml"
    path.write_text(f"workers = 2\n{table}\n" if table.startswith("[") else f"{table}\nworkers = 2\n")
    with pytest.raises(ConfigError) as raised:
        load_config(path, {})
    assert str(raised.value).startswith(f"{path}: {message}")


def test_a_run_file_says_the_same_as_options(make_trace):
    trace = make_trace([[i % 7] for i in range(100)])
    typed = kvbench.replay(trace, workers=2, index="predictive,ttl=5", event_channel="delay=3", load="window=9")
    tables = {"index": {"mode": "predictive", "ttl": 5}, "event_channel": {"delay": 3}, "load": {"window": 9}}
    assert typed.summary == kvbench.replay(trace, workers=2, **tables).summary
