"""``kvbench events import``, ``export`` and ``stats``: other systems' events in and out."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow.parquet as pq
import pytest

from kvbench.events.frames import message, write_frame
from kvbench.events.vllm import AllBlocksCleared, Batch, WireEvent, encode_batch
from tests.cli.streams import capture, removed, resident, stored, told

if TYPE_CHECKING:
    from conftest import Cli

GOLDEN = Path(__file__).parents[3] / "shared/golden"


def test_a_capture_becomes_rows_of_a_block_each(cli: Cli, tmp_path: Path) -> None:
    capture(
        tmp_path / "capture.bin",
        [
            ("kv@a", 0, 100.0, [stored(1, 2), stored(9, medium="CPU")]),
            ("kv@b", 5, 100.5, [stored(1)]),
            ("kv@a", 1, 102.0, [stored(3, parent=2), removed(1)]),
        ],
    )
    report = told(cli, "import", "capture.bin", "-o", "events.parquet")
    assert (report["format"], report["messages"], report["workers"]) == ("vllm", 3, ["kv@a", "kv@b"])
    rows = pq.read_table(tmp_path / "events.parquet").to_pylist()
    names = ("request", "time_ns", "worker", "sequence", "kind", "tier", "store", "key", "parent")
    assert [tuple(row[name] for name in names) for row in rows] == [
        (0, 0, 0, 0, "INSERT", "gpu", 0, 1, None),
        (0, 0, 0, 1, "INSERT", "gpu", 0, 2, 1),
        (0, 0, 0, 2, "INSERT", "cpu", 0, 9, None),
        (1, 500_000_000, 1, 0, "INSERT", "gpu", 1, 1, None),
        (2, 2_000_000_000, 0, 3, "INSERT", "gpu", 0, 3, 2),
        (2, 2_000_000_000, 0, 4, "DELETE", "gpu", 0, 1, None),
    ]
    assert resident(cli, tmp_path) == {("gpu", 0, 2), ("gpu", 0, 3), ("gpu", 1, 1), ("cpu", 0, 9)}


def test_gaps_repeats_and_late_messages_are_counted_to_the_last_one(cli: Cli, tmp_path: Path) -> None:
    heard = [0, 1, 1, 4, 3, 9, 4]  # 2 and 5 to 8 are lost, 3 is late, 1 and 4 come twice
    capture(tmp_path / "capture.bin", [("", number, float(number), [stored(number)]) for number in heard])
    report = told(cli, "import", "capture.bin", "-o", "events.parquet")
    counts = {name: report[name] for name in ("messages", "gaps", "lost", "late", "repeats", "restarts")}
    assert counts == {"messages": 5, "gaps": 2, "lost": 5, "late": 1, "repeats": 2, "restarts": 0}
    assert told(cli, "stats", "events.parquet")["heard"] == {**counts, "unknown": {}}
    assert {key for _, _, key in resident(cli, tmp_path)} == {0, 1, 3, 4, 9}


def test_a_gap_takes_no_memory_however_wide_it_is(cli: Cli, tmp_path: Path) -> None:
    last = 2**63
    heard = [0, last, 5, 4, 6, 5]
    capture(tmp_path / "capture.bin", [("", number, float(number % 99), [stored(1)]) for number in heard])
    report = told(cli, "import", "capture.bin", "-o", "events.parquet")
    assert (report["lost"], report["gaps"], report["late"]) == (last - 1 - 3, 1, 3)
    assert report["repeats"] == 1


def test_a_worker_that_counts_anew_has_lost_what_it_held(cli: Cli, tmp_path: Path) -> None:
    capture(
        tmp_path / "capture.bin",
        [
            ("a", 7, 10.0, [stored(1), stored(2, medium="CPU")]),
            ("b", 0, 10.0, [stored(1)]),
            ("a", 0, 20.0, [stored(3)]),
            ("a", 0, 20.0, [stored(3)]),
        ],
    )
    report = told(cli, "import", "capture.bin", "-o", "events.parquet")
    assert (report["restarts"], report["repeats"], report["events"]["CLEAR"]) == (1, 1, 2)
    assert resident(cli, tmp_path) == {("gpu", 0, 3), ("gpu", 1, 1)}


def test_a_clear_empties_all_tiers_of_its_worker_and_no_others(cli: Cli, tmp_path: Path) -> None:
    held = [stored(1), stored(2, medium="CPU")]
    capture(tmp_path / "capture.bin", [("a", 0, 1.0, held), ("b", 0, 1.0, held), ("a", 1, 2.0, [AllBlocksCleared()])])
    told(cli, "import", "capture.bin", "-o", "events.parquet")
    assert resident(cli, tmp_path) == {("gpu", 1, 1), ("cpu", 1, 2)}


def test_one_hash_in_two_attention_groups_is_two_blocks(cli: Cli, tmp_path: Path) -> None:
    events = [stored(1, group=0), stored(1, group=1), removed(1, group=0)]
    capture(tmp_path / "capture.bin", [("", 0, 1.0, events)])
    told(cli, "import", "capture.bin", "-o", "events.parquet")
    assert resident(cli, tmp_path, "--duplicates", "refuse") == {("gpu", 1, 1)}


def test_a_block_that_is_stored_twice_and_removed_once_is_gone_by_the_naive_rule_alone(
    cli: Cli, tmp_path: Path
) -> None:
    """The scenario of two equal requests in flight: one copy of a3 goes, the other can still be hit."""
    names = {f"{chain}{at}": 10 * number + at for number, chain in enumerate("abc", 1) for at in range(4)}
    golden = json.loads((GOLDEN / "golden_vllm.json").read_text()) if (GOLDEN / "golden_vllm.json").exists() else None
    if golden is None:
        pytest.skip("needs golden_vllm.json of the shared folder")
    (scenario,) = (each for each in golden["manager_scenarios"] if each["name"].startswith("duplicate blocks"))
    messages = []
    for number, step in enumerate(step for step in scenario["steps"] if "events" in step):
        events: list[WireEvent] = []
        for kind, hashes, *rest in step["events"]:
            keys = [names[each] for each in hashes]
            parent = names.get(rest[0]) if kind == "BlockStored" and rest[0] else None
            events.append(stored(*keys, parent=parent) if kind == "BlockStored" else removed(*keys))
        messages.append(("", number, float(number), events))
    capture(tmp_path / "capture.bin", messages)
    told(cli, "import", "capture.bin", "-o", "events.parquet")
    truth = {("gpu", 0, names[name]) for name in ("a0", "a1", "a2", "a3", "c0", "c1", "c2")}
    assert resident(cli, tmp_path) == resident(cli, tmp_path, "--duplicates", "refcount") == truth
    assert resident(cli, tmp_path, "--duplicates", "naive") == truth - {("gpu", 0, names["a3"])}
    folded = told(cli, "fold", "events.parquet")
    assert (folded["rule"], folded["duplicates"], folded["unheld"], folded["diverging"]) == ("refcount", 1, 0, 1)
    refused = cli("events", "fold", "events.parquet", "--duplicates", "refuse")
    assert refused.code == 2
    assert f"INSERT of key {names['a3']}, which is in store 0 of tier gpu already" in refused.err


def test_a_recording_of_lmcache_is_read_to_its_end(cli: Cli, tmp_path: Path) -> None:
    path = GOLDEN / "sample_events.lct"
    if not path.exists():
        pytest.skip(f"needs {path.name} of the shared folder")
    report = told(cli, "import", str(path), "-o", "events.parquet")
    assert (report["format"], report["messages"], report["workers"]) == ("lmcache", 5, ["node-a"])
    rows = pq.read_table(tmp_path / "events.parquet").to_pylist()
    assert [(row["time_ns"], row["kind"], row["tier"]) for row in rows] == [
        (500_000_000, "INSERT", "l1/dram"),
        (500_000_000, "INSERT", "l1/dram"),
        (1_500_000_000, "INSERT", "l2/fs"),
        (2_000_000_000, "DELETE", "l1/dram"),
    ]
    assert resident(cli, tmp_path) == {("l1/dram", 0, 0x0101010101010101), ("l2/fs", 0, 0x0101010101010101)}
    manifest = json.loads(pq.read_metadata(tmp_path / "events.parquet").metadata[b"kvbench"])
    assert manifest["imported"]["capacity_bytes"] == {"node-a": {"l1/dram": 2**30}}
    assert (manifest["imported"]["accesses"], manifest["imported"]["origin_s"]) == (1, 1.0)


def recording(path: Path, batches: Iterable[dict[str, Any]], **header: Any) -> None:
    """A file like those of LMCache's recorder."""
    with path.open("wb") as file:
        head = {"type": "header", "magic": b"LMCT", "format_version": 1, "level": "events", "trace_schema_version": 1}
        write_frame(file, {**head, **header})
        for batch in batches:
            write_frame(file, {"type": "record", "t_mono": 0.0, "qualname": "events.batch", "args": batch})


def lmcache_batch(seq: int, chunk: str, kind: str = "store", **more: Any) -> dict[str, Any]:
    key = {"chunk_hash_hex": chunk * 32, "model_name": more.pop("model", "m"), "kv_rank": more.pop("rank", 1)}
    key["cache_salt"] = more.pop("salt", "")
    return {
        "instance_id": more.pop("instance", "a"), "incarnation": more.pop("life", 1), "seq": seq, "event_type": kind,
        "tier": "l1", "backend": "dram", "entries": [{"key": key}], "ts": float(seq), **more,
    }  # fmt: skip


def test_a_later_incarnation_voids_what_the_ones_before_placed(cli: Cli, tmp_path: Path) -> None:
    batches = [
        lmcache_batch(1, "01", life=1), lmcache_batch(2, "02", life=1), lmcache_batch(1, "03", life=2),
        lmcache_batch(3, "04", life=1), lmcache_batch(1, "03", life=2), lmcache_batch(1, "01", instance="b"),
    ]  # fmt: skip
    recording(tmp_path / "rec.lct", batches)
    report = told(cli, "import", "rec.lct", "-o", "events.parquet")
    assert (report["restarts"], report["repeats"]) == (1, 2)
    assert {(store, key >> 56) for _, store, key in resident(cli, tmp_path)} == {(0, 3), (1, 1)}


def test_ranks_have_stores_of_their_own_and_salts_keys_of_their_own(cli: Cli, tmp_path: Path) -> None:
    batches = [
        lmcache_batch(1, "01"), lmcache_batch(2, "01", rank=2), lmcache_batch(3, "01", salt="tenant"),
        lmcache_batch(4, "01", model="other"),
    ]  # fmt: skip
    recording(tmp_path / "rec.lct", batches)
    told(cli, "import", "rec.lct", "-o", "events.parquet")
    held = resident(cli, tmp_path, "--duplicates", "refuse")
    assert sorted(store for _, store, _ in held) == [0, 0, 0, 1]
    assert len({key for _, _, key in held}) == 3


def test_router_events_of_dynamo_are_read(cli: Cli, tmp_path: Path) -> None:
    blocks = [{"block_hash": 2**64 - 1, "tokens_hash": 5}, {"block_hash": 2, "tokens_hash": 6}]
    lines = [
        {"worker_id": 3, "event": {"event_id": 0, "data": {"stored": {"parent_hash": None, "blocks": blocks}}}},
        {"timestamp": 1500,
         "event": {"worker_id": 3, "event": {"event_id": 1, "data": {"removed": {"block_hashes": [2]}}}}},
        {"worker_id": 4, "event": {"event_id": 0, "storage_tier": "host_pinned",
                                   "data": {"stored": {"parent_hash": 9, "blocks": blocks[1:]}}}},
        {"event_id": 0, "dp_rank": 1, "data": {"stored": {"parent_hash": None, "blocks": blocks}}},
        {"event_id": 1, "dp_rank": 1, "data": "cleared"},
    ]  # fmt: skip
    (tmp_path / "events.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    report = told(cli, "import", "events.jsonl", "-o", "events.parquet")
    assert (report["format"], report["workers"]) == ("dynamo", ["3/0", "4/0", "0/1"])
    assert resident(cli, tmp_path) == {("gpu", 0, 2**64 - 1), ("cpu", 0, 2)}


def test_lifetimes_and_returns_are_measured_to_the_event(cli: Cli, tmp_path: Path) -> None:
    capture(
        tmp_path / "capture.bin",
        [
            ("", 0, 10.0, [stored(1), stored(2), stored(2)]),
            ("", 1, 14.0, [removed(1), removed(2), removed(7)]),
            ("", 2, 17.0, [stored(1)]),
        ],
    )
    told(cli, "import", "capture.bin", "-o", "events.parquet")
    (tier,) = told(cli, "stats", "events.parquet")["tiers"]
    assert tier == {
        "tier": "gpu", "stored": 4, "removed": 3, "distinct": 2, "resident_at_end": 2, "stored_again": 1,
        "duplicates": 1, "unheld": 1,
        "lifetime_s": {"p50": 4.0, "p90": 4.0, "p99": 4.0}, "absence_s": {"p50": 3.0, "p90": 3.0, "p99": 3.0},
    }  # fmt: skip
    text = cli("events", "stats", "events.parquet")
    assert text.code == 0
    assert "3 messages heard" in text.out


LMC = {"type": "header", "magic": b"LMCT", "format_version": 1, "level": "events", "trace_schema_version": 1}


def framed(*contents: object) -> bytes:
    bodies = [msgspec.msgpack.encode(content) for content in contents]
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


BAD: dict[str, tuple[bytes, list[str], str]] = {
    "empty": (b"", [], "is empty"),
    "something else": (b"PK\x03\x04" * 9, [], "is neither a capture"),
    "cut short": (framed(message("", 0, b"\x90"))[:-1], [], "frame 0 is cut short"),
    "cut in a length": (framed(message("", 0, encode_batch(Batch(0.0, [])))) + b"\0\0", [], "frame 1 is cut short"),
    "a payload that is none": (framed(message("", 3, b"\x90")), [], "frame 0: [] is no batch"),
    "a short number": (framed([b"", b"\1", b"\x90"]), [], "has 1 bytes instead of 8"),
    "no time": (framed(message("", 0, encode_batch(Batch(float("nan"), [])))), [], "time nan s is not within"),
    "an endless frame": (b"\xff\xff\xff\xff" + b"x" * 99, ["--format", "vllm"], "is said to have 4,294,967,295"),
    "no message": (framed([b"x"]), ["--format", "vllm"], "is no message"),
    "no list": (framed({"a": 1}), ["--format", "vllm"], "is no list of a message's parts"),
    "not LMCache's": (framed({"a": 1}), ["--format", "lmcache"], "has no header of an LMCache recording"),
    "another version": (framed({**LMC, "format_version": 2}), [], "has versions 2 and 1 of format and schema"),
    "storage calls": (framed({**LMC, "level": "storage"}), [], "records level 'storage'"),
    "no record": (framed(LMC, [1]), [], "frame 1 is no record"),
    "a bad batch": (
        framed(LMC, {"type": "record", "qualname": "events.batch", "args": {"seq": 1}}), [],
        "frame 1: Object missing required field `instance_id`",
    ),
    "a bad hash": (
        framed(LMC, {"type": "record", "qualname": "events.batch", "args": lmcache_batch(1, "xy")}), [],
        "frame 1: chunk_hash_hex 'xyxy",
    ),
    "bad JSON": (b'{"event_id": 0, "data": "cleared"}\n{"event_id"', [], "line 2: Input data was truncated"),
    "no data": (b'{"event_id": 0}', [], "line 1: {'event_id': 0} is no event"),
    "a bad block": (b'{"event_id": 0, "data": {"stored": {"blocks": [1]}}}', [], "line 1: data: Expected `object`"),
    "a bad number": (b'{"event_id": "0", "data": "cleared"}', [], "line 1: event_id '0' is no whole number"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_cannot_be_read_is_one_clear_error(cli: Cli, tmp_path: Path, name: str) -> None:
    content, options, says = BAD[name]
    (tmp_path / "bad.bin").write_bytes(content)
    done = cli("events", "import", "bad.bin", "-o", "events.parquet", *options)
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1), done
    assert f"error: bad.bin: {says}" in done.err or (done.err.startswith("error: bad.bin: ") and says in done.err)
    assert not (tmp_path / "events.parquet").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["import", "none.bin", "-o", "out.parquet"], "error: none.bin: cannot be read"),
        (["import", "kept", "-o", "kept"], "is the file that is read"),
        (
            ["import", "kept", "-o", "out.parquet", "--format", "smoke"],
            "no event format is called 'smoke'; there are dynamo, lmcache, vllm",
        ),
        (["export", "kept", "-o", "out.bin"], "error: kept: is no Parquet file"),
        (["export", "kept", "-o", "kept"], "is the log that is read"),
        (["stats", "kept"], "error: kept: is no Parquet file"),
        (["fold", "kept", "--duplicates", "maybe"], "'maybe' is not one of"),
    ],
)
def test_a_bad_option_is_one_clear_error(cli: Cli, tmp_path: Path, arguments: list[str], says: str) -> None:
    (tmp_path / "kept").write_text("precious")
    done = cli("events", *arguments)
    assert done.code == 2
    assert says in done.err.splitlines()[-1]
    assert (tmp_path / "kept").read_text() == "precious"


def test_a_first_message_heard_twice_is_a_repeat_and_no_restart(cli: Cli, tmp_path: Path) -> None:
    blocks = [{"block_hash": 1, "tokens_hash": 5}]
    line = json.dumps({"worker_id": 3, "event": {"event_id": 0, "data": {"stored": {"blocks": blocks}}}})
    (tmp_path / "events.jsonl").write_text(2 * f"{line}\n")
    report = told(cli, "import", "events.jsonl", "-o", "events.parquet")
    assert (report["repeats"], report["restarts"]) == (1, 0)


@pytest.mark.parametrize("form", ["vllm", "dynamo"])
def test_a_file_without_a_message_is_refused(cli: Cli, tmp_path: Path, form: str) -> None:
    (tmp_path / "empty").write_bytes(b"")
    done = cli("events", "import", "empty", "--format", form, "-o", "events.parquet")
    assert done.code == 2
    assert f"has no message of format {form}" in done.err
    assert not (tmp_path / "events.parquet").exists()
