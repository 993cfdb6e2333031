"""The one-pass curve against replays, a plain model and golden counts."""

from __future__ import annotations

import json
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvbench
from kvbench.errors import PluginError
from kvbench.plugins import load_registry
from kvbench.replays.distances import FIGURES, ExactSums, GroupSums
from kvbench.replays.onepass import OnePass
from kvbench.results.parquet import read_manifest

TRACES = ("conversation", "synthetic")
MEANS = ("request_mean", "request_mean_token")
GOLDEN_CAPACITIES = (1_000, 3_000, 10_000, 30_000, 50_000, 100_000, 200_000)
REGISTRY = load_registry(autoload=False)

subset = st.lists(st.integers(0, 30), min_size=1, max_size=12, unique=True)
chain = st.integers(1, 2**8).map(lambda leaf: [leaf >> up for up in reversed(range(leaf.bit_length()))])
traces = st.lists(subset | chain, min_size=1, max_size=25)

FEW = settings(max_examples=50, deadline=None)


def partial_of(rows):
    """Tokens that each last block lacks; every third row's is full."""
    return [len(row) * 7 % 3 * 4 for row in rows]


def curve(trace, capacities, **kwargs):
    return kvbench.curve(trace, capacities=",".join(map(str, capacities)), registry=REGISTRY, **kwargs)


def assert_same_rates(row, replayed):
    """All of them, to the last bit but for the means over requests, which a replay adds up in floats."""
    for name, rate in replayed.rates.items():
        assert row["rates"][name] == (pytest.approx(rate, rel=1e-12) if name in MEANS else rate), name


def replayed(trace, capacity, **kwargs):
    return kvbench.replay(trace, capacity=capacity, registry=REGISTRY, belady="off", **kwargs)


class PlainPass:
    """The plain algorithm: a list with the most recent block last, and its position block by block."""

    def __init__(self):
        self.order = []
        self.distances = []

    def serve(self, keys):
        found = {key: len(self.order) - 1 - at for at, key in enumerate(self.order)}
        self.distances.append([found.get(key) for key in keys])
        touched = set(keys)
        self.order = [key for key in self.order if key not in touched] + list(reversed(keys))

    def figures(self, capacity):
        """Hit blocks, requests with a hit and blocks found anywhere at a capacity."""
        hits, requests, anywhere = 0, 0, 0
        for distances in self.distances:
            held = [distance is not None and distance < capacity for distance in distances]
            prefix = [*held, False].index(False)
            hits += prefix
            requests += prefix > 0
            anywhere += sum(held)
        return hits, requests, anywhere


def one_pass(rows, *, batch_rows=7, dense=False, **kwargs):
    """The figures of a pass over rows of keys, cut into batches."""
    sums = ExactSums()
    onepass = OnePass(sums, block_tokens=10, dense=dense, **kwargs)
    for start in range(0, len(rows), batch_rows):
        part = rows[start : start + batch_rows]
        lengths = np.array([len(row) for row in part], np.int64)
        keys = np.array([key for row in part for key in row], np.uint64)
        times = np.arange(start, start + len(part), dtype=np.int64)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        onepass.run(keys, offsets, lengths.astype(np.int32), 10 * lengths, times)
    return sums, onepass


def read(sums, capacities):
    out = np.zeros((len(capacities), len(FIGURES)))
    sums.read(np.array(capacities, np.int64), out)
    return [dict(zip(FIGURES, row, strict=True)) for row in out.tolist()]


@settings(max_examples=20, deadline=None)
@given(traces, st.sampled_from(["keep", "drop"]))
def test_the_curve_is_what_replays_give_at_every_capacity(make_trace, rows, tails):
    trace = make_trace(rows, partial_of(rows))
    capacities = range(1, 35)
    for row in curve(trace, capacities, tails=tails).curve:
        assert_same_rates(row, replayed(trace, row["capacity_blocks"], tails=tails))


@FEW
@given(traces, st.integers(1, 9))
def test_runs_give_what_the_plain_algorithm_gives_block_by_block(rows, batch_rows):
    plain = PlainPass()
    for row in rows:
        plain.serve(row)
    sums, onepass = one_pass(rows, batch_rows=batch_rows)
    capacities = range(1, 40)
    for capacity, figures in zip(capacities, read(sums, capacities), strict=True):
        got = (figures["hit_blocks"], figures["any_requests"], figures["resident_blocks"])
        assert got == plain.figures(capacity)
    assert onepass.distinct == len({key for row in rows for key in row})


def long_rows(seed, blocks):
    """Rows over a universe of chains, long enough for positions to be numbered anew several times."""
    rng = random.Random(seed)
    rows = []
    while sum(map(len, rows)) < blocks:
        tree, depth = rng.randrange(12), rng.randrange(1, 900)
        rows.append([tree * 1_000 + at for at in range(depth)])
        if rng.random() < 0.3:
            rows.append(rng.sample(range(12_000), rng.randrange(1, 600)))
    return rows


@pytest.mark.parametrize("seed", range(3))
def test_nothing_changes_when_positions_are_numbered_anew(seed):
    rows = long_rows(seed, 300_000)
    plain = PlainPass()
    for row in rows:
        plain.serve(row)
    dense = {key: at for at, key in enumerate(dict.fromkeys(key for row in rows for key in row))}
    capacities = [1, 10, 500, 900, 2_000, 5_000, 11_000, 12_000]
    for sums, onepass in (one_pass(rows), one_pass([[dense[key] for key in row] for row in rows], dense=True)):
        for capacity, figures in zip(capacities, read(sums, capacities), strict=True):
            assert (figures["hit_blocks"], figures["any_requests"], figures["resident_blocks"]) == plain.figures(
                capacity
            )
        assert onepass.distinct == len(dense)


def short_rows(seed, rows):
    """Rows of one block, often of the blocks asked for before, and now and then a longer one."""
    rng = random.Random(seed)
    return [
        rng.sample(range(400), rng.choice([0, 2, 5])) if rng.random() < 0.02 else [int(rng.paretovariate(0.4)) % 400]
        for _ in range(rows)
    ]


@pytest.mark.parametrize("batch_rows", [97, 70_000])
def test_requests_of_one_block_give_what_the_plain_algorithm_gives(batch_rows):
    rows = short_rows(batch_rows, 70_000)
    plain = PlainPass()
    for row in rows:
        plain.serve(row)
    capacities = [1, 2, 7, 30, 60, 130, 300, 399, 400]
    for dense in (True, False):
        sums, onepass = one_pass(rows, batch_rows=batch_rows, dense=dense)
        for capacity, figures in zip(capacities, read(sums, capacities), strict=True):
            got = (figures["hit_blocks"], figures["any_requests"], figures["resident_blocks"])
            assert got == plain.figures(capacity)
        assert onepass.distinct == len({key for row in rows for key in row})


def test_a_request_of_one_block_weighs_the_same_beside_a_block_that_is_not_cacheable():
    keys = np.array([1, 9, 2, 9, 1, 9, 2, 9], np.uint64)
    both = []
    for width in (1, 2):
        sums = ExactSums()
        onepass = OnePass(sums, block_tokens=10, dense=False)
        offsets = np.arange(0, 4 * width + 1, width, dtype=np.int64)
        asked = keys if width == 2 else keys[::2].copy()
        onepass.run(asked, offsets, np.ones(4, np.int32), np.full(4, 10 * width, np.int64), np.arange(4))
        both.append((read(sums, [1, 2, 3]), onepass.reuse_times))
    (lone, lone_times), (paired, paired_times) = both
    shares = ("block_shares", "token_shares")
    for alone, beside in zip(lone, paired, strict=True):
        assert alone == {name: value * 2 if name in shares else value for name, value in beside.items()}
    assert lone_times == paired_times


@pytest.mark.parametrize("name", TRACES)
def test_golden_lru_counts_lie_on_the_curve(mooncake, shared, name):
    golden = json.loads((shared / "golden/lru_hits.json").read_text())[name]
    result = curve(mooncake(name), GOLDEN_CAPACITIES, tails="keep")
    asked = result.summary["blocks"]["asked"]
    assert (asked, result.summary["blocks"]["distinct"]) == (golden["accesses"], golden["unique"])
    for row in result.curve:
        assert row["rates"]["block"] == golden[str(row["capacity_blocks"])]["two_phase_tail_first"] / asked
    assert result.summary["infinite_rates"]["block"] == (golden["accesses"] - golden["unique"]) / asked


@pytest.mark.parametrize(("name", "tails"), [("conversation", "keep"), ("synthetic", "drop")])
def test_the_curve_is_what_replays_give_at_200_random_capacities(mooncake, name, tails):
    """Half of them from the whole range of the curve on a logarithmic scale, which takes in capacities
    smaller than a request."""
    rng = random.Random(name)
    trace = pa.ipc.open_file(mooncake(name)).read_all()
    capacities = sorted(
        {rng.randrange(1, 200_000) for _ in range(120)} | {int(10 ** rng.uniform(0, 5.3)) for _ in range(130)}
    )
    assert len(capacities) >= 200
    assert capacities[0] < 24
    for row in curve(trace, capacities, tails=tails).curve:
        assert_same_rates(row, replayed(trace, row["capacity_blocks"], tails=tails))


@pytest.mark.slow
def test_weka_golden_counts_lie_on_the_curve(weka, shared):
    golden = json.loads((shared / "golden/lru_hits.json").read_text())["weka_merged"]
    result = curve(weka, (50_000, 100_000, 1_000_000))
    for row in result.curve:
        hits = golden[str(row["capacity_blocks"])]["two_phase_tail_first"]
        assert row["rates"]["block"] == hits / golden["accesses"]
    assert result.summary["infinite_rates"]["block"] == golden["infinite_hits"] / golden["accesses"]
    for row in curve(weka, (1, 777, 31_459, 2_000_000)).curve:
        assert_same_rates(row, replayed(weka, row["capacity_blocks"]))


@pytest.mark.slow
def test_the_weka_curve_is_what_replays_give_at_200_random_capacities(weka):
    rng = random.Random(4)
    head = weka.slice(0, 2_500)
    capacities = sorted({int(10 ** rng.uniform(0, 6)) for _ in range(230)})[:200]
    for row in curve(head, capacities).curve:
        assert_same_rates(row, replayed(head, row["capacity_blocks"]))


def test_the_file_has_every_capacity_that_changes_the_curve(make_trace, tmp_path):
    rows = [[1, 2, 3], [4, 5], [1, 2, 3], [6], [1, 2], [4, 5], [1, 2, 3]]
    path = tmp_path / "curve.parquet"
    result = curve(make_trace(rows), [2], output=str(path))
    table = pq.read_table(path)
    assert table["capacity_blocks"].to_pylist() == [2, 3, 4, 5, 6]
    hits = {capacity: replayed(make_trace(rows), capacity).summary["blocks"]["hit"] for capacity in range(1, 9)}
    changes = [capacity for capacity in hits if capacity > 1 and hits[capacity] != hits[capacity - 1]]
    assert set(changes) <= set(table["capacity_blocks"].to_pylist())
    assert [hits[capacity] for capacity in table["capacity_blocks"].to_pylist()] == table["hit_blocks"].to_pylist()
    assert read_manifest(path)["summary"] == result.summary
    assert table["token_rate_low"].null_count == table.num_rows


def test_distances_and_times_of_reuse_are_counted_in_powers_of_two(make_trace):
    """Block 1 is used again at once, then after the three others; its uses are 10 and 90 ns apart."""
    trace = make_trace([[1], [1], [2, 3, 4], [1]], arrival_ns=pa.array([0, 10, 20, 100], pa.int64()))
    summary = curve(trace, [1]).summary
    assert summary["reuse_distance_blocks"] == [
        {"from": 0, "below": 1, "blocks": 1},
        {"from": 1, "below": 2, "blocks": 0},
        {"from": 2, "below": 4, "blocks": 1},
    ]
    assert [each for each in summary["reuse_time_ns"] if each["blocks"]] == [
        {"from": 8, "below": 16, "blocks": 1},
        {"from": 64, "below": 128, "blocks": 1},
    ]


def test_the_knee_lies_where_a_sharp_curve_bends(make_trace):
    """Sixteen blocks are used in turn thirty times, and then a few of a thousand once more."""
    rows = [[at % 16] for at in range(480)] + [[100 + at] for at in range(1_000)] + [[100 + at] for at in range(5)]
    result = curve(make_trace(rows), [16, 1_000])
    assert result.summary["knee"]["capacity_blocks"] == 16
    assert result.summary["saturation_blocks"] == 1_000


def test_a_trace_without_reuse_has_a_flat_curve(make_trace):
    result = kvbench.curve(make_trace([[1, 2], [3]]), registry=REGISTRY)
    assert result.summary["knee"] is result.summary["saturation_blocks"] is None
    assert [row["rates"]["block"] for row in result.curve] == [0.0]
    assert result.summary["reuse_distance_blocks"] == []


def test_a_trace_without_rows_has_null_rates(make_trace):
    result = kvbench.curve(make_trace([]), registry=REGISTRY)
    assert set(result.summary["infinite_rates"].values()) == {None}


def test_gain_is_per_gibibyte_where_the_size_of_a_block_is_known(make_trace):
    trace = make_trace([[1, 2, 3, 4], [1, 2, 3, 4]])
    plain = curve(trace, [1, 4]).curve
    sized = curve(trace, [1, 4], block_bytes="512MiB").curve
    assert [row["marginal_token_rate"] for row in plain] == [pytest.approx(125), pytest.approx(125)]
    assert [row["marginal_token_rate"] for row in sized] == [pytest.approx(0.25), pytest.approx(0.25)]
    assert sized[1]["capacity_bytes"] == 2**31


def test_a_key_that_stands_twice_in_a_request_is_refused():
    with pytest.raises(PluginError, match="stands twice"):
        one_pass([[1, 2, 1]])


def test_curves_do_not_depend_on_how_the_trace_is_cut(mooncake):
    table = pa.ipc.open_file(mooncake("synthetic")).read_all().slice(0, 1_500)
    whole = kvbench.curve(table, registry=REGISTRY)
    cut = kvbench.curve(pa.concat_tables([table.slice(0, 13), table.slice(13)]), registry=REGISTRY)
    assert (cut.manifest, cut.summary, cut.curve) == (whole.manifest, whole.summary, whole.curve)


def test_bad_buffers_are_refused_before_they_are_read():
    onepass = OnePass(ExactSums(), block_tokens=10, dense=False)
    one = np.array([1], np.int64)
    with pytest.raises(ValueError, match="outside the keys"):
        onepass.run(np.zeros(1, np.uint64), np.array([0, 5], np.int64), np.array([5], np.int32), one, one)
    with pytest.raises(ValueError, match="has 1 blocks, not 2"):
        onepass.run(np.zeros(2, np.uint64), np.array([0, 1], np.int64), np.array([2], np.int32), one, one)
    with pytest.raises(ValueError, match="groups"):
        onepass.run(
            np.zeros(1, np.uint64), np.array([0, 1], np.int64), one.astype(np.int32), one, one, np.zeros(1, np.int32)
        )
    with pytest.raises(ValueError, match="must rise"):
        GroupSums(ExactSums(), np.array([2, 1], np.int64), 1)
