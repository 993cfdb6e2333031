"""``kvbench events export``, and logs that are damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from kvbench.events.vllm import AllBlocksCleared
from tests.cli.streams import capture, removed, resident, stored, told

if TYPE_CHECKING:
    from conftest import Cli


@pytest.mark.parametrize("layout", ["map", "array"])
def test_a_replay_sent_out_as_vllm_would_comes_back_as_the_same_state(
    cli: Cli, tmp_path: Path, sample: Path, layout: str
) -> None:
    tiers = ["--tier", "gpu,capacity=60", "--tier", "cpu,capacity=300", "--workers", "3", "--placement", "exclusive"]
    assert cli("replay", sample, *tiers, "--events", "events.parquet").code == 0
    before = resident(cli, tmp_path)
    assert cli("events", "export", "events.parquet", "-o", "capture.bin", "--layout", layout).code == 0
    report = told(cli, "import", "capture.bin", "-o", "events.parquet", "--force")
    assert (report["lost"], report["repeats"], len(report["workers"])) == (0, 0, 3)
    assert report["workers"] == [f"kvbench@{name.split('@')[1]}" for name in report["workers"]]
    order = {number: int(name.split("@")[1]) for number, name in enumerate(report["workers"])}
    after = resident(cli, tmp_path, "--duplicates", "refuse")
    assert {(tier, key) for tier, _, key in after} == {(tier, key) for tier, _, key in before}
    assert len(after) == len(before)
    assert sorted(order.values()) == [0, 1, 2]


def test_an_imported_log_sent_out_again_comes_back_as_the_same_state(cli: Cli, tmp_path: Path) -> None:
    """Copies, attention groups, clears of all and of a restart, times and the size of a block."""
    twice = [stored(1, 2, group=0), stored(1, group=1), stored(2, parent=1, group=0), stored(7, medium="CPU")]
    messages = [
        ("a", 4, 100.0, twice),
        ("b", 0, 100.5, [*twice, removed(2, group=0), removed(1, group=1)]),
        ("a", 5, 101.0, [removed(2, group=0), AllBlocksCleared(), stored(3, group=1), stored(4, medium="CPU")]),
        ("b", 0, 102.0, [stored(5)]),
        ("c", 0, 103.0, twice),
    ]
    capture(tmp_path / "capture.bin", messages)
    told(cli, "import", "capture.bin", "-o", "events.parquet")
    before = resident(cli, tmp_path), told(cli, "fold", "events.parquet"), times(tmp_path)
    assert cli("events", "export", "events.parquet", "-o", "again.bin").code == 0
    report = told(cli, "import", "again.bin", "-o", "events.parquet", "--force")
    assert report["messages"] == len(messages)
    assert (resident(cli, tmp_path), told(cli, "fold", "events.parquet"), times(tmp_path)) == before


def times(tmp_path: Path) -> tuple[float, int]:
    """The origin of an imported log's times, and the last of them."""
    path = tmp_path / "events.parquet"
    imported = json.loads(pq.read_metadata(path).metadata[b"kvbench"])["imported"]
    return imported["origin_s"], pq.read_table(path)["time_ns"].to_pylist()[-1]


def test_a_log_with_rows_missing_doubled_and_late_says_so(cli: Cli, tmp_path: Path) -> None:
    capture(tmp_path / "capture.bin", [("", number, float(number), [stored(number)]) for number in range(8)])
    told(cli, "import", "capture.bin", "-o", "whole.parquet")
    whole = pq.read_table(tmp_path / "whole.parquet")
    damage = {"missing": 3, "doubled": 1, "late": 1}  # 2, 5 and 6; 1; 3
    pq.write_table(whole.take([0, 1, 1, 4, 3, 7]), tmp_path / "events.parquet")
    stats = told(cli, "stats", "events.parquet")
    assert (stats["damage"], stats["events"], stats["tiers"][0]["duplicates"]) == (damage, 5, 0)
    assert not any(told(cli, "stats", "whole.parquet")["damage"].values())
    says = "is damaged: 3 events are missing, 1 rows are doubled, 1 stand late"
    assert says in cli("events", "stats", "events.parquet").out
    done = cli("events", "export", "events.parquet", "-o", "out.bin", "--block-tokens", "16")
    assert says in done.out
    assert "5 messages" in done.out


def test_a_block_is_sent_behind_its_parent(cli: Cli, tmp_path: Path, sample: Path) -> None:
    assert cli("replay", sample, "--capacity", "400", "--events", "events.parquet").code == 0
    assert cli("events", "export", "events.parquet", "-o", "capture.bin").code == 0
    told(cli, "import", "capture.bin", "-o", "again.parquet")
    held: set[int] = set()
    for row in pq.read_table(tmp_path / "again.parquet").to_pylist():
        if row["kind"] == "DELETE":
            held.discard(row["key"])
        else:
            assert row["parent"] is None or row["parent"] in held
            held.add(row["key"])


def test_a_log_that_does_not_say_its_block_size_needs_one_to_be_sent_out(cli: Cli, tmp_path: Path) -> None:
    block = {"block_hash": 1, "tokens_hash": 5}
    line = {"worker_id": 3, "event": {"event_id": 0, "data": {"stored": {"blocks": [block]}}}}
    (tmp_path / "events.jsonl").write_text(json.dumps(line) + "\n")
    told(cli, "import", "events.jsonl", "-o", "events.parquet")
    refused = cli("events", "export", "events.parquet", "-o", "out.bin")
    assert refused.code == 2
    assert "give --block-tokens" in refused.err
    assert cli("events", "export", "events.parquet", "-o", "out.bin", "--block-tokens", "16").code == 0


@pytest.mark.parametrize("tiers", [["gpu"], ["gpu", "cpu"]])
def test_a_restart_of_one_tier_leaves_the_others_what_they_have(
    cli: Cli, tmp_path: Path, sample: Path, tiers: list[str]
) -> None:
    faults = "".join(f'[[fault]]\nkind = "restart"\ntier = "{tier}"\nfrom_request = 1900\n' for tier in tiers)
    (tmp_path / "faults.toml").write_text(faults)
    stack = ["--tier", "gpu,capacity=60", "--tier", "cpu,capacity=300", "--faults", "faults.toml"]
    assert cli("replay", sample, *stack, "--events", "events.parquet").code == 0
    before = {(tier, key) for tier, _, key in resident(cli, tmp_path)}
    assert cli("events", "export", "events.parquet", "-o", "capture.bin").code == 0
    told(cli, "import", "capture.bin", "-o", "events.parquet", "--force")
    assert {(tier, key) for tier, _, key in resident(cli, tmp_path, "--duplicates", "refuse")} == before
