"""What users of KV caches report of time, as tests named after their ids: sections A, C, E, H and J on the clock.

A16 of arrivals alone, H-i, H-j and H-k are in test_arrivals.py, and beside the figures in tests/results.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from clocked import GB, INSTANT, MS, ONE_GB_PER_S, SECOND, STEADY, column, links, samples, seconds, serve, trace

import kvbench
from kvbench.trace.formats.mooncake import MooncakeFormat
from kvbench.trace.importer import import_trace
from kvbench.trace.schema import TraceFacts

CHAT = Path(__file__).parents[2] / "traces" / "chat.arrow"
A, B = [1, 2, 3, 4, 5], [11, 12, 13, 14, 15]


def requests_of(result: Any) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = result.requests.to_pydict()
    return found


# -- A: traces -------------------------------------------------------------------------------------


def test_A14_a_trace_of_lengths_alone_queues_and_has_no_hit_rates() -> None:
    table = pa.table(
        {"arrival_ns": pa.array([0, 0, 0], pa.int64()), "input_tokens": pa.array([10, 10, 10], pa.uint32())}
    ).replace_schema_metadata(TraceFacts().to_metadata())
    result = serve(table, worker="sequences=1")
    assert set(result.rates.values()) == {None}
    assert result.summary["blocks"] is None
    assert column(result, "hit_blocks") == [None] * 3
    assert seconds(result, "ttft_ns") == [1, 2, 3]


def test_A16_milliseconds_for_seconds_change_arrivals_and_no_hit_where_service_takes_no_time(tmp_path: Path) -> None:
    rows = [[i % 2, 10 + i % 3, 20 + i] for i in range(60)]
    far = serve(trace(rows, list(range(60))), INSTANT, capacity=9)
    near = serve(trace(rows, [i / 1000 for i in range(60)]), INSTANT, capacity=9)
    assert column(far, "arrival_ns") == [1000 * ns for ns in column(near, "arrival_ns")]
    assert column(far, "hit_blocks") == column(near, "hit_blocks")
    assert far.rates == near.rates
    assert far.rates["block"]


def test_A16_milliseconds_of_a_log_and_nanoseconds_of_a_table_are_one_trace(tmp_path: Path) -> None:
    """Whatever the origin: epochs, or the first request."""
    ids, ms, tokens = [[1, 2], [1, 2, 3], [4], [1, 2]], [0, 1500, 1501, 9000], [20, 30, 7, 20]
    log = tmp_path / "log.jsonl"
    log.write_text(
        "".join(
            f'{{"timestamp": {each}, "input_length": {length}, "output_length": 5, "hash_ids": {row}}}\n'
            for row, each, length in zip(ids, ms, tokens, strict=True)
        )
    )
    import_trace(log, tmp_path / "log.arrow", format=MooncakeFormat(), block_tokens=10)
    table = trace(ids, [each / 1000 for each in ms], tokens=tokens, answers=[5] * 4)
    epoch_ns = pa.array([1_700_000_000 * SECOND + each * MS for each in ms], pa.int64())
    sources = (tmp_path / "log.arrow", table, table.set_column(0, "arrival_ns", epoch_ns))
    imported, *others = [serve(each, slo="ttft=2s", capacity=4) for each in sources]
    for other in others:
        assert requests_of(other) == requests_of(imported)
        assert other.summary == imported.summary


def test_A22_a_row_without_tokens_is_rejected_and_in_no_denominator() -> None:
    table = trace([[1], [], [1]], [0, 1, 2], tokens=[10, 0, 10])
    result = serve(table, on_error="skip")
    requests, timed = result.summary["requests"], result.summary["timed"]
    assert (requests["arrived"], requests["done"], requests["rejected"]) == (3, 2, 1)
    assert timed["ttft_ns"]["n"] == timed["throughput"]["requests"] == 2
    assert result.rates["request_any"] == 0.5


def test_A23_an_answer_of_no_token_is_a_prefill_alone_and_has_no_time_per_token() -> None:
    result = serve(trace([[1], [2]], [0, 10], answers=[0, 3]))
    assert column(result, "generated_tokens") == [0, 3]
    assert column(result, "ttft_ns")[0] is None
    assert seconds(result, "e2e_ns") == [1, pytest.approx(1.2)]
    assert column(result, "tpot_ns") == [None, 100 * MS]
    tpot = result.summary["timed"]["tpot_ns"]
    assert (tpot["n"], tpot["missing"]) == (1, 1)


def test_A23_a_window_leaves_out_a_ramp_up_at_either_end() -> None:
    table = trace([[i] for i in range(6)], [0, 100, 200, 201, 202, 300])
    timed = serve(table, window="start=150s,end=250s", capacity=100).summary["timed"]
    assert timed["requests"] == {"arrived": 3, "done": 3, "rejected": 0, "unfinished": 0, "not_counted": 3}


def test_A31_a_closed_loop_counts_the_think_time_from_the_simulated_end() -> None:
    """Recorded: from 0 to 4 s, and a turn 2 s later. Simulated service takes 10 s."""
    table = trace(
        [[*range(10)], [99]],
        [0, 6],
        session_id=pa.array(["s", "s"]),
        think_time_ns=pa.array([None, 2 * SECOND], pa.int64()),
    )
    assert seconds(serve(table), "arrival_ns") == [0, 6]
    closed = serve(table, arrivals="session")
    assert seconds(closed, "arrival_ns") == [0, 12]
    assert seconds(closed, "ttft_ns") == [10, 1]
    assert seconds(closed, "trace_arrival_ns") == [0, 6]


# -- C: granularity and hits -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "recompute", "hit", "computed"),
    [(32, "token", 31, 1), (32, "block", 16, 16), (33, "token", 32, 1), (33, "block", 32, 1), (32, "none", 32, 1)],
)
def test_C02_a_fully_cached_prompt_computes_a_token_at_least(
    tokens: int, recompute: str, hit: int, computed: int
) -> None:
    ids = [1, 2] if tokens == 32 else [1, 2, 3]
    table = trace([ids, ids], [0, 100], tokens=[tokens] * 2)
    table = table.replace_schema_metadata(TraceFacts(block_tokens=16).to_metadata())
    result = serve(table, recompute=recompute)
    assert column(result, "hit_tokens") == [0, hit]
    assert column(result, "computed_tokens") == [tokens, computed]
    assert seconds(result, "prefill_ns") == [pytest.approx(tokens / 10), pytest.approx(computed / 10)]


def test_C07_a_prompt_computed_in_chunks_is_asked_for_once_in_each_tier() -> None:
    tiers: list[dict[str, Any]] = [{"name": "gpu", "capacity": 100}, {"name": "cpu"}]
    for worker in ("batch_tokens=20", "batch_tokens=80"):
        result = serve(trace([[*range(8)]], [0]), worker=worker, tiers=tiers)
        assert result.summary["timed"]["workers"]["each"][0]["steps"] == (4 if worker.endswith("20") else 1)
        assert result.summary["blocks"]["asked"] == 8
        assert result.summary["tokens"]["input"] == 80
        assert [record["read_blocks"] for record in result.summary["tiers"]] == [0, 0]
        assert seconds(result, "ttft_ns") == [8]


def test_C12_a_partial_block_has_a_place_while_it_runs_and_evicts_nothing_for_good(tmp_path: Path) -> None:
    """Four blocks of 4 tokens, a prompt of 13: three resident afterwards, one free; and that one is used first."""
    table = trace([[1, 2, 3, 4], [8]], [0, 100], tokens=[13, 4])
    table = table.replace_schema_metadata(TraceFacts(block_tokens=4).to_metadata())
    result = serve(table, capacity=4, timeline=str(tmp_path / "t.parquet"), sample="1s")
    rows = {row["time_ns"] // SECOND: row for row in samples(tmp_path / "t.parquet", "store")}
    kinds = ("pinned_blocks", "private_blocks", "reusable_blocks", "free_blocks")
    assert [rows[1][kind] for kind in kinds] == [3, 1, 0, 0]
    assert [rows[50][kind] for kind in kinds] == [0, 0, 3, 1]
    assert column(result, "evicted_blocks") == [0, 0]


@pytest.mark.parametrize(("share", "hit", "ttft"), [("false", 0, 6), ("true", 3, 3.1)])
def test_C13_equal_prompts_in_flight_compute_twice_or_wait_and_hit(share: str, hit: int, ttft: float) -> None:
    result = serve(trace([[1, 2, 3]] * 3, [0, 0, 100]), worker=f"share={share}")
    assert column(result, "hit_blocks") == [0, hit, 3]
    assert column(result, "miss_not_visible_blocks") == [0, 3 - hit, 0]
    assert seconds(result, "ttft_ns")[1:] == [pytest.approx(ttft), pytest.approx(0.1)]
    assert result.summary["blocks"]["resident_at_end"] == 3
    assert sum(result.summary["misses"].values()) + result.summary["blocks"]["hit"] == 9


# -- E: tiers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("write", "recoverable"), [("through", 2), ("back", 5)])
def test_E01_what_was_not_written_before_its_eviction_is_lost(write: str, recoverable: int) -> None:
    """Five blocks are written at one a second, and evicted after two."""
    tiers = [{"name": "gpu", "capacity": 5}, {"name": "cpu", "device": ONE_GB_PER_S, "write": write}]
    result = serve(trace([A, B, A], [0, 2, 100]), INSTANT, tiers=tiers, block_bytes=GB)
    assert column(result, "hit_cpu_blocks") == [0, 0, recoverable]
    assert column(result, "miss_evicted_blocks") == [0, 0, 5 - recoverable]
    assert seconds(result, "fetch_ns")[2] == recoverable
    assert result.summary["timed"]["run"]["lost_writes"] == 5 - recoverable


def test_E02_writes_go_on_while_nothing_arrives() -> None:
    """Five blocks in five seconds, of an hour in which nothing else happens."""
    tiers = [{"name": "gpu", "capacity": 5}, {"name": "cpu", "device": ONE_GB_PER_S}]
    result = serve(trace([A, B, A], [0, 3600, 7200]), INSTANT, tiers=tiers, block_bytes=GB)
    assert column(result, "hit_cpu_blocks") == [0, 0, 5]
    alone = serve(trace([A], [0]), INSTANT, tiers=tiers, block_bytes=GB)
    assert alone.summary["timed"]["run"]["end_ns"] == 5 * SECOND
    assert links(alone)["cpu write"]["moved_bytes"] == 5 * GB
    cut = serve(trace([A, B], [0, 3600]), INSTANT, tiers=tiers, block_bytes=GB, stop="time=3s")
    assert links(cut)["cpu write"]["moved_bytes"] == 3 * GB


@pytest.mark.parametrize(("sharing", "ends"), [("fair", [2, 2]), ("fifo", [1, 2])])
def test_E13_nodes_have_a_disk_of_their_own_and_share_a_file_system(sharing: str, ends: list[float]) -> None:
    """Each of two nodes asks for what the other one stored, at once."""
    result = serve(
        trace([[1], [2], [2], [1]], [0, 0, 100, 100]),
        INSTANT,
        workers=2,
        router="round-robin",
        block_bytes=GB,
        tiers=[
            {"name": "gpu", "capacity": 1},
            {"name": "nvme", "capacity": 1},
            {"name": "dfs", "scope": "cluster", "device": ONE_GB_PER_S, "sharing": sharing},
        ],
    )
    assert column(result, "worker") == [0, 1, 0, 1]
    assert column(result, "hit_nvme_blocks") == [0, 0, 0, 0]
    assert column(result, "hit_dfs_blocks") == [0, 0, 1, 1]
    assert seconds(result, "fetch_ns")[2:] == ends
    assert result.manifest["config"]["tiers"][2]["sharing"] == sharing


@pytest.mark.parametrize(("tokens", "loaded"), [(26, False), (27, True)])
def test_E15_what_is_computed_sooner_is_not_loaded(tokens: int, loaded: bool) -> None:
    """5 ms and 131,072 bytes a token at 10 GB/s, or 5,000 tokens/s: even at about 26.75 tokens.

    Behind them comes a token that nobody has, so that one has not to be computed of what is there.
    """
    rows = [[*range(tokens)], [*range(100, 101 + tokens)], [*range(tokens), 999]]
    table = trace(rows, [0, 10, 20], tokens=[len(row) for row in rows])
    table = table.replace_schema_metadata(TraceFacts(block_tokens=1).to_metadata())
    device = {**ONE_GB_PER_S, "read_gb_per_s": 10, "read_latency_us": 5_000}
    found: dict[str, Any] = {}
    for load in ("always", "cheaper"):
        found[load] = serve(
            table,
            "fixed,prefill_ms_per_token=0.2,decode_ms=0",
            tiers=[{"name": "gpu", "capacity": tokens + 1}, {"name": "cpu", "device": device}],
            block_bytes=131_072,
            worker=f"load={load}",
        )
    assert column(found["always"], "hit_cpu_blocks")[2] == tokens
    assert column(found["cheaper"], "hit_cpu_blocks")[2] == (tokens if loaded else 0)
    assert column(found["cheaper"], "declined_blocks")[2] == (0 if loaded else tokens)
    assert column(found["cheaper"], "ttft_ns")[2] <= column(found["always"], "ttft_ns")[2]
    for result in found.values():
        blocks, misses = result.summary["blocks"], result.summary["misses"]
        assert blocks["hit"] + sum(misses.values()) == blocks["asked"]


# -- H: latency, queues, windows -------------------------------------------------------------------


def test_H_a_latency_counts_from_intended_arrival() -> None:
    """A second of service, an arrival every half second."""
    result = serve(trace([[i] for i in range(10)], [i / 2 for i in range(10)]), worker="sequences=1")
    assert seconds(result, "ttft_ns") == seconds(result, "e2e_ns") == [1 + i / 2 for i in range(10)]
    assert result.summary["timed"]["e2e_ns"]["mean"] == 3.25 * SECOND


def test_H_b_simultaneous_prefills_one_by_one_average_half_of_all_and_one() -> None:
    result = serve(trace([[i] for i in range(4)], [0] * 4), worker="sequences=1")
    assert seconds(result, "ttft_ns") == [1, 2, 3, 4]
    assert seconds(result, "queue_ns") == [0, 1, 2, 3]
    assert result.summary["timed"]["ttft_ns"]["mean"] == 2.5 * SECOND
    together = serve(trace([[i] for i in range(4)], [0] * 4))
    assert seconds(together, "ttft_ns") == [4, 4, 4, 4]


def test_H_c_the_order_of_the_gaps_changes_ttft_and_no_hit_where_time_plays_no_part() -> None:
    rows = [[i % 4, 100 + i] for i in range(12)]
    even, bursty = [0.0, 4.0] * 6, [0.0] * 6 + [4.0] * 6
    at = [[sum(gaps[: i + 1]) for i in range(12)] for gaps in (even, bursty)]
    assert at[0][-1] == at[1][-1]
    instant = [serve(trace(rows, times), INSTANT, capacity=5) for times in at]
    assert column(instant[0], "hit_blocks") == column(instant[1], "hit_blocks")
    timed = [serve(trace(rows, times), worker="sequences=1").summary["timed"]["ttft_ns"]["mean"] for times in at]
    assert timed[0] < timed[1]


def test_H_d_no_more_is_computed_than_the_worker_can_however_often_requests_are_preempted() -> None:
    rows = [[*range(10 * i, 10 * i + 3)] for i in range(12)]
    table = trace(rows, [i / 10 for i in range(12)], answers=[40] * 12)
    result = serve(table, "fixed,prefill_ms_per_token=100,decode_ms=10", capacity=14)
    timed = result.summary["timed"]
    assert timed["work"]["preemptions"] > 0
    assert timed["work"]["recomputed_tokens"] > 0
    (worker,) = timed["workers"]["each"]
    assert worker["prefill_tokens"] == sum(column(result, "computed_tokens"))
    assert timed["throughput"]["computed_tokens_per_s"] <= 10
    assert timed["throughput"]["input_tokens_per_s"] <= 10
    assert column(result, "generated_tokens") == [40] * 12


def test_H_e_a_run_that_does_not_go_on_ends_with_a_diagnosis() -> None:
    """A fetch that would take three hundred thousand years is never over."""
    device = {**ONE_GB_PER_S, "read_gb_per_s": 1e-9, "write_gb_per_s": 1e9}
    tiers = [{"name": "gpu", "capacity": 1}, {"name": "cpu", "device": device}]
    result = serve(trace([[1], [2], [1]], [0, 100, 200]), tiers=tiers, block_bytes=10**13)
    run = result.summary["timed"]["run"]
    assert run["stop"] == "no progress"
    assert "1 fetching" in run["diagnosis"]
    assert column(result, "status") == ["done", "done", "unfinished"]
    assert seconds(result, "ttft_ns") == [1, 1, None]


def test_H_e_steps_without_a_token_are_counted_and_too_many_are_no_progress() -> None:
    prompt = trace([[*range(10)]], [0], answers=[1])
    stopped = serve(prompt, worker="batch_tokens=1", stop="stall_steps=50")
    assert stopped.summary["timed"]["run"]["stop"] == "no progress"
    assert "1 prefilling" in stopped.summary["timed"]["run"]["diagnosis"]
    answer = trace([[1]], [0], answers=[500])
    assert serve(answer, stop="stall_steps=50").summary["timed"]["run"]["stop"] == "all requests done"


def test_H_g_warm_up_is_in_the_cache_and_in_no_figure() -> None:
    table = trace([[1, 2]] * 4, [0, 100, 200, 300])
    cold, warm = serve(table), serve(table, window="warmup=1")
    assert cold.rates["block"] == 6 / 8
    assert warm.rates["block"] == 1
    assert cold.summary["timed"]["ttft_ns"]["max"] == 2 * SECOND
    assert warm.summary["timed"]["ttft_ns"]["max"] == 100 * MS
    assert serve(table, window="warmup=150s").rates == serve(table, window="warmup=50%").rates == warm.rates


def test_H_h_throughput_of_a_window_is_not_diluted_by_the_tail() -> None:
    """One request a second, and one of ninety seconds at the end."""
    table = trace([*([i] for i in range(30)), [*range(100, 190)]], [*range(30), 30], answers=[1] * 31)
    timed = serve(table, worker="sequences=1", window="start=10s,end=20s").summary["timed"]
    assert timed["window_throughput"]["requests_per_s"] == 1
    whole = serve(table, worker="sequences=1").summary["timed"]
    assert whole["throughput"]["requests_per_s"] == pytest.approx(31 / 120)


def test_H_h_a_run_ends_early_when_the_mean_ttft_is_known_well_enough() -> None:
    """Prompts of ten lengths in turn: their mean is known long before the end."""
    count = 10_000
    table = trace([[i] for i in range(count)], range(count), tokens=[1 + i % 10 for i in range(count)])
    early = serve(table, stop="converged=0.01").summary
    assert early["timed"]["run"]["stop"] == "converged"
    assert early["requests"]["arrived"] < count
    assert early["timed"]["ttft_ns"]["mean"] == pytest.approx(550 * MS, rel=0.01)


@pytest.mark.parametrize(
    ("stop", "reason", "arrived", "unfinished"),
    [("rows=7", "row limit", 7, 0), ("time=12s", "time limit", 12, 1), ("time=1000s", "all requests done", 31, 0)],
)
def test_H_h_a_run_ends_early_by_rows_or_by_time(stop: str, reason: str, arrived: int, unfinished: int) -> None:
    table = trace([*([i] for i in range(30)), [*range(100, 190)]], [0, *(i + 0.5 for i in range(1, 30)), 31])
    result = serve(table, worker="sequences=1", stop=stop)
    assert result.summary["timed"]["run"]["stop"] == reason
    requests = result.summary["requests"]
    assert (requests["arrived"], requests["unfinished"]) == (arrived, unfinished)
    assert requests["arrived"] == requests["done"] + requests["unfinished"]


def test_H_i_a_request_without_a_first_token_has_no_ttft_and_is_counted_apart() -> None:
    result = serve(trace([[1], [2]], [0, 1.5]), stop="time=2s")
    assert seconds(result, "ttft_ns") == [1, None]
    timed = result.summary["timed"]
    assert (timed["ttft_ns"]["n"], timed["requests"]["unfinished"]) == (1, 1)
    assert timed["ttft_ns"]["max"] == SECOND
    assert timed["percentile_method"] == "linear"


# -- J: the same again -----------------------------------------------------------------------------


def test_J01_the_same_seed_gives_the_same_files_and_another_one_others(tmp_path: Path) -> None:
    def run(name: str, seed: int) -> list[bytes]:
        files = {kind: tmp_path / f"{name}-{kind}.parquet" for kind in ("output", "timeline")}
        serve(
            CHAT,
            "fixed,prefill_ms_per_token=0.1,decode_ms=5",
            seed=seed,
            workers=3,
            router="random",
            arrivals="trace,jitter=500ms",
            stop="rows=300",
            tiers=[{"name": "gpu", "capacity": 400}, {"name": "cpu", "capacity": 900, "device": ONE_GB_PER_S}],
            block_bytes=10**6,
            **{kind: str(path) for kind, path in files.items()},
        )
        return [path.read_bytes() for path in files.values()]

    first = run("a", 1)
    assert run("b", 1) == first
    assert all(other != one for other, one in zip(run("c", 2), first, strict=True))


def test_J01_five_seeds_give_each_figure_a_mean_and_an_interval() -> None:
    settings: dict[str, Any] = {"compute": STEADY, "workers": 3, "router": "random", "stop": "rows=50", "seeds": 5}
    figures = kvbench.replay_seeds(CHAT, **settings).figures
    ttft = figures["timed.ttft_ns.p95"]
    assert ttft.n == 5
    assert ttft.low is not None
    assert ttft.high is not None
    assert ttft.low < ttft.mean < ttft.high
    assert figures["requests.arrived"].low == figures["requests.arrived"].high == 50
