"""The tables of a timed replay: Parquet and screen, from made times beside the hits of an order replay."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest
from timings import MS, SECOND, times_of

import kvbench
from kvbench.cli.tables import print_replay
from kvbench.config import RunConfig, load_config
from kvbench.plugins import load_registry
from kvbench.replays.engine import Engine
from kvbench.replays.plan import make_plan
from kvbench.replays.tiers import TieredCore
from kvbench.replays.timecolumns import TIME_COLUMNS
from kvbench.replays.timedfacts import LinkFacts, LinkSample, RunFacts, TimedSample, WorkerFacts, WorkerSample
from kvbench.results.result import ReplayResult, make_result
from kvbench.results.run import Recorder
from kvbench.results.timed import TimedTotals
from kvbench.results.timedtimeline import TIMED_COLUMNS, TIMED_TIMELINE_SCHEMA
from kvbench.results.timeline import TIMELINE_SCHEMA
from kvbench.results.window import Window
from kvbench.trace.reader import open_trace

CHAT = Path(__file__).parents[2] / "traces" / "chat.arrow"
REQUESTS = 1_952
TIERS = ["gpu,capacity=400", "cpu,capacity=1500"]


def made(first: int, count: int) -> list[dict[str, Any]]:
    """A request a second, all shifted by an hour; number 3 is rejected, number 5 unfinished."""
    rows: list[dict[str, Any]] = [
        {"arrival": (3_600 + k) * SECOND, "queue": k % 7 * MS, "fetch": 2 * MS, "prefill": 40 * MS, "decode": 90 * MS}
        for k in range(first, first + count)
    ]
    for row in rows:
        row |= {"output": 10, "computed_tokens": 100}
    if first <= 3 < first + count:
        rows[3 - first] |= {"status": "rejected", "need_blocks": 500}
    if first <= 5 < first + count:
        rows[5 - first] |= {"status": "unfinished", "admitted_ns": 3_605 * SECOND, "prefill_start_ns": 3_605 * SECOND}
    return rows


def samples(core: TieredCore) -> list[TimedSample]:
    """Two samples, one second apart: the worker was busy for a quarter of it, and its link for half of it."""
    stores = core.store_states()
    return [
        TimedSample(
            10 * at,
            (3_600 + at) * SECOND,
            stores,
            [WorkerSample(0, 1, 2, 3, 4, 5, 10, 100, at * SECOND // 4, [MS] * (49 + at))],
            [LinkSample("cpu", 0, 1_000 * at, at * SECOND // 2, 1)],
        )
        for at in range(2)
    ]


def timed_replay(tmp_path: Path, window: Window | None = None, **settings: Any) -> tuple[ReplayResult, RunConfig]:
    """A replay with made times, as if the core had run on the clock."""
    paths = {"output": str(tmp_path / "requests.parquet"), "timeline": str(tmp_path / "timeline.parquet")}
    config = load_config(None, {"trace": str(CHAT), "tiers": TIERS, "force": True, **paths, **settings})
    registry, trace = load_registry(autoload=False), open_trace(CHAT)
    plan = make_plan(config, registry, trace)
    engine = Engine(plan, trace)
    timed = TimedTotals(window, {"ttft": 45 * MS, "tpot": 10 * MS})
    recorder = Recorder(plan, trace, keep_requests=False, has_bound=False, timed=timed, moved=True)
    worker = WorkerFacts(0, 1_000, 900 * SECOND, 200_000, 19_000, 0, 0)
    link = LinkFacts("cpu", 0, 10**9, 100 * SECOND, 50, 25e9)
    facts = RunFacts((3_600 + REQUESTS) * SECOND, "time limit", [worker], [link])
    with ExitStack() as stack:
        recorder.open(stack)
        done = 0
        for served in engine.run():
            times = times_of(made(done, served.batch.num_rows))
            recorder.add(engine, replace(served, times=times), done)
            done += served.batch.num_rows
        assert isinstance(engine.core, TieredCore)
        recorder.add_samples(samples(engine.core), engine.core.tiers, engine.core.capacities)
        recorder.close(engine)
        result = make_result(plan, trace, engine, recorder.totals, registry, (timed, facts))
        recorder.finish(result)
    result.wall_clock = {"total_s": 1.0, "replay_s": 1.0, "requests_per_s": 1.0, "blocks_per_s": 1.0}
    return result, config


def test_the_request_table_has_times_latencies_and_both_arrivals(tmp_path: Path) -> None:
    timed_replay(tmp_path)
    table = pq.read_table(tmp_path / "requests.parquet")
    assert set(TIME_COLUMNS) < set(table.column_names)
    rows = table.to_pylist()
    assert rows[0]["status"] == "done"
    assert (rows[0]["ttft_ns"], rows[0]["tpot_ns"], rows[0]["e2e_ns"]) == (42 * MS, 10 * MS, 132 * MS)
    assert (rows[3]["status"], rows[3]["need_blocks"], rows[3]["ttft_ns"]) == ("rejected", 500, None)
    assert (rows[5]["status"], rows[5]["end_ns"], rows[5]["tpot_ns"]) == ("unfinished", None, None)
    plain = kvbench.replay(CHAT, tiers=TIERS, keep_requests=True).requests
    assert plain is not None
    assert [row["arrival_ns"] for row in rows] == [(3_600 + k) * SECOND for k in range(REQUESTS)]
    assert table["trace_arrival_ns"].to_pylist() == plain["arrival_ns"].to_pylist()
    same = [name for name in plain.column_names if name not in ("arrival_ns", "belady_hit_blocks")]
    assert table.select(same).combine_chunks() == plain.select(same).combine_chunks()


def test_an_order_replay_has_none_of_them() -> None:
    plain = kvbench.replay(CHAT, capacity=100, keep_requests=True).requests
    assert plain is not None
    assert not set(plain.column_names) & (set(TIME_COLUMNS) - {"arrival_ns"} | {"ttft_ns", "trace_arrival_ns"})


def test_the_timeline_has_rows_of_stores_workers_and_links(tmp_path: Path) -> None:
    timed_replay(tmp_path)
    table = pq.read_table(tmp_path / "timeline.parquet")
    rows = table.to_pylist()
    assert [row["kind"] for row in rows] == ["store", "store", "worker", "link"] * 2
    gpu, cpu, worker, link = rows[4:]
    assert (gpu["name"], gpu["private_blocks"], cpu["private_blocks"]) == ("gpu", 10, None)
    parts = [gpu[f"{name}_blocks"] for name in ("pinned", "reusable", "private", "free")]
    assert sum(parts) == 400
    states = [worker[name] for name in ("waiting", "fetching", "ready", "prefilling", "decoding", "steps")]
    assert states == [1, 2, 3, 4, 5, 100]
    assert (worker["busy_share"], link["busy_share"], rows[2]["busy_share"]) == (0.25, 0.5, None)
    assert (link["moved_bytes"], link["in_flight"], link["hit_blocks"]) == (1_000, 1, None)
    assert TIMED_TIMELINE_SCHEMA.names == [*TIMED_COLUMNS, *TIMELINE_SCHEMA.names[4:]]


def test_op_48_recent_latency_is_null_until_there_are_fifty(tmp_path: Path) -> None:
    timed_replay(tmp_path)
    table = pq.read_table(tmp_path / "timeline.parquet")
    assert table["recent_ttft_p95_ns"].to_pylist() == [None] * 6 + [MS, None]


def test_the_summary_has_every_request_once_and_equal_runs_give_equal_bytes(tmp_path: Path) -> None:
    result, _ = timed_replay(tmp_path)
    requests = result.summary["requests"]
    assert requests["arrived"] == requests["done"] + requests["rejected"] + requests["unfinished"] == REQUESTS
    assert requests["counted"] == REQUESTS - 1, "the rejected one was never looked up"
    assert requests["rejected_examples"] == ["request 3 needs 500 GPU blocks, and a worker has 400"]
    files = [(tmp_path / f"{name}.parquet").read_bytes() for name in ("requests", "timeline")]
    again, _ = timed_replay(tmp_path)
    assert msgspec.json.encode(again.summary) == msgspec.json.encode(result.summary)
    assert [(tmp_path / f"{name}.parquet").read_bytes() for name in ("requests", "timeline")] == files


def test_h_g_warm_up_is_left_out_of_hit_rates_and_not_of_the_cache(tmp_path: Path) -> None:
    result, _ = timed_replay(tmp_path, Window(first_request=1_000))
    plain = kvbench.replay(CHAT, tiers=TIERS, keep_requests=True).requests
    assert plain is not None
    late = plain.slice(1_000)
    hits, asked = (np.sum(late[name].to_numpy()) for name in ("hit_tokens", "input_tokens"))
    assert result.summary["rates"]["token"] == hits / asked
    tiers = result.summary["tiers"]
    assert [tier["hit_blocks"] for tier in tiers] == [
        np.sum(late[f"hit_{name}_blocks"].to_numpy()) for name in ("gpu", "cpu")
    ]
    assert result.summary["requests"]["counted"] == REQUESTS - 1_000
    assert result.summary["timed"]["ttft_ns"]["n"] == REQUESTS - 1_000


def test_the_screen_says_how_long_it_took_and_whether_it_kept_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    print_replay(*timed_replay(tmp_path, Window(first_request=2)))
    text = capsys.readouterr().out
    lines = {line.strip().split("  ")[0]: line.split() for line in text.splitlines()}
    assert lines["TTFT"][1:4] == ["1,948", "45", "ms"]
    assert lines["prefill"][-7:] == ["queue", "+", "fetch", "+", "prefill", "=", "TTFT"]
    assert lines["TPOT"][-2:] == ["AIPerf's", "ITL"]
    assert lines["ITL"][-2:] == ["vLLM's", "ITL"]
    assert lines["goodput"][1] == "1,113"
    assert lines["cpu 0"][-4:] == ["0.01", "GB/s", "25", "GB/s"]
    assert "verdict: STABLE: 7 % of the mean TTFT is waiting" in text
    assert "stopped after 32.5 min: time limit" in text
    assert "unfinished: 1 requests" in text
    assert "not counted: 2 requests" in text
