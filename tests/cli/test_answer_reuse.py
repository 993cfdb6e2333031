"""``kvbench answer reuse`` beside counting by hand, and beside other commands."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kvbench.trace.reader import open_trace
from tests.cli.answers import answered, write_trace
from tests.cli.conftest import Cli


def counted_sources(rows: list[dict[str, Any]], block_tokens: int) -> Counter[str]:
    """Hit tokens of a cache of everything by source, block after block."""
    uses: Counter[int] = Counter()
    several: set[int] = set()
    last: dict[int, tuple[str | None, str | None]] = {}
    hits: list[tuple[int, str]] = []
    for row in rows:
        whole = row["input_tokens"] // block_tokens
        leading = True
        blocks = row["block_ids"]
        seen = [block in last for block in blocks[:whole]]
        who = (row.get("session_id"), row.get("tenant"))
        for at, block in enumerate(blocks):
            uses[block] += 1
            before = last.get(block)
            if before is not None and None not in (before[0], who[0]) and before[0] != who[0]:
                several.add(block)
            leading = leading and at < whole and seen[at]
            if leading and before is not None:
                if before[1] != who[1]:
                    kind = "other_tenant"
                elif before[0] is None or who[0] is None:
                    kind = "no_session"
                else:
                    kind = "same_session" if before[0] == who[0] else "other_session"
                hits.append((block, kind))
            last[block] = who
    least = max(0.01 * len(rows), 2)
    has_sessions = "session_id" in rows[0]
    found: Counter[str] = Counter()
    for block, kind in hits:
        opening = uses[block] >= least and (block in several or not has_sessions)
        found["opening" if opening else kind] += block_tokens
    return found


def test_hits_are_of_the_source_that_counting_by_hand_gives_them(cli: Cli, sample: Path) -> None:
    rows = pa.Table.from_batches(list(open_trace(sample).batches())).to_pylist()
    sources = {row["source"]: row["hit_tokens"] for row in answered(cli, "reuse", sample)["tables"]["sources"]}
    assert set(sources) == {"opening", "same_session"}
    assert sources == counted_sources(rows, 64)


def test_sessions_tenants_and_nobody_are_told_apart(cli: Cli, tmp_path: Path) -> None:
    """A document of one tenant's two sessions, one without a session, and an opening of all: tenants share it."""
    rows = [
        ("s1", "x", [1, 10, 11]),
        ("s2", "x", [1, 10, 12]),
        ("s2", "x", [1, 10, 12, 13]),
        (None, "x", [1, 10, 12, 13]),
        ("s3", "y", [1, 20, 21]),
        ("s3", "y", [1, 20, 21]),
        *((f"t{at}", "x", [1, 100 + at]) for at in range(600)),
    ]
    columns = {
        "session_id": pa.array([session for session, _, _ in rows]),
        "tenant": pa.array([tenant for _, tenant, _ in rows]),
    }
    trace = write_trace(tmp_path / "t.arrow", [ids for _, _, ids in rows], columns=columns, block_tokens=8)
    found = answered(cli, "reuse", trace, "--shared-blocks", "1")
    sources = {row["source"]: row["hit_blocks"] for row in found["tables"]["sources"]}
    # opening: block 1 of all but the first; same session: 10, 12 of the third row and 20, 21 of the last of s3;
    # other session: 10 of the second; no session: 10, 12, 13 of the fourth
    assert sources == {"opening": 605, "same_session": 4, "other_session": 1, "no_session": 3}


def test_bound_histograms_and_misses_are_those_of_replay_and_curve(cli: Cli, sample: Path) -> None:
    tables = answered(cli, "reuse", sample)["tables"]
    replay = json.loads(cli("replay", sample, "--json").out)["summary"]
    curve = json.loads(cli("curve", sample, "--json").out)["summary"]
    assert {row["rate"]: row["infinite_rate"] for row in tables["bound"]} == replay["infinite_rates"]
    missed = {reason: count for reason, count in replay["misses"].items() if count}
    assert {row["reason"]: row["missed_blocks"] for row in tables["misses"]} == missed
    for name, unit, of in (("reuse-distance", "blocks", "distance_blocks"), ("reuse-time", "ns", "time_ns")):
        bins = [(row[f"from_{unit}"], row["reused_blocks"]) for row in tables[name]]
        assert bins == [(each["from"], each["blocks"]) for each in curve[f"reuse_{of}"] if each["blocks"]]
        assert tables[name][-1]["cumulated_share"] == 1


def test_C05_a_prefix_shorter_than_a_block_is_named_and_a_finer_block_hits_it(cli: Cli, tmp_path: Path) -> None:
    """Requests that share 240 tokens: nothing at blocks of 784, all of them at 16."""
    prompts = [[*range(240), *range(1_000 * at, 1_000 * at + 800)] for at in range(1, 30)]
    trace = write_trace(tmp_path / "t.arrow", prompts, ids="token_ids")
    coarse = answered(cli, "reuse", trace, "--block-tokens", "784")
    assert coarse["advice"][0].startswith("No: a cache that holds everything hits none of the input tokens.")
    assert any("28 requests share a prefix shorter than a block of 784 tokens" in line for line in coarse["advice"])
    fine = answered(cli, "reuse", trace, "--block-tokens", "16")
    assert fine["advice"][0].startswith("Yes: ")
    (token,) = (row["infinite_rate"] for row in fine["tables"]["bound"] if row["rate"] == "token")
    assert token == pytest.approx(28 * 240 / (29 * 1_040))


def test_E14_a_trace_of_little_reuse_is_called_so(cli: Cli, tmp_path: Path) -> None:
    rows = [[1, *range(100 * at, 100 * at + 20)] for at in range(1, 40)]
    found = answered(cli, "reuse", write_trace(tmp_path / "t.arrow", rows, block_tokens=8))
    assert found["advice"][0].startswith("Little: a cache that holds everything hits 4.64 %")
