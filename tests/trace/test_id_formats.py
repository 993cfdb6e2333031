"""What holds for all formats with ids, objects or counts: each file is one format's, and damage is told."""

from __future__ import annotations

import gzip
import json
import tarfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbench.builtin_id_formats import id_formats
from kvbench.builtin_others import kvbench_trace_formats
from kvbench.errors import KvbenchError
from kvbench.trace import guess_format, import_trace
from kvbench.trace.formats import ReadLog
from kvbench.trace.formats.libcachesim_binary import OracleGeneralOpNsFormat
from kvbench.trace.formats.text import Lines

NAMES = [spec.name for spec in id_formats()]
SHARED = {
    "kv-cache-tester/weka_traces_710_rle.jsonl.gz": "weka",
    "libcachesim/cloudPhysicsIO.csv.gz": "libcachesim-csv",
    "libcachesim/cloudPhysicsIO.oracleGeneral.bin": "libcachesim-oracle",
    "libcachesim/cloudPhysicsIO.txt.gz": "libcachesim-txt",
    "libcachesim/cloudPhysicsIO.vscsi.gz": "libcachesim-vscsi",
    "mooncake/conversation_trace.jsonl.gz": "mooncake",
    "tracelab/multi_session_example.csv": "tracelab",
    "tracelab/multi_session_large.csv": "tracelab",
    "tracelab/round_trace.jsonl": "tracelab",
    "tracelab/session_workload_example.csv": "tracelab",
}


PIECES = st.sampled_from(
    [b"-1", b"1e999", b"NaN", b"null", b"[[", b"{", b'"', b"\n", b"\xff", b"9" * 30, b"4294967295", b"[" * 5_000]
)


def formats():
    return [(spec.name, spec.load()()) for spec in kvbench_trace_formats()]


@cache
def examples(blocks: int = 5) -> dict[str, bytes]:
    """A small file of each format, by the format's name; ``blocks`` is the length of lists of ids."""
    long = list(range(blocks))
    bailian = {"chat_id": 1, "parent_chat_id": -1, "timestamp": 1.5, "input_length": 16 * blocks, "hash_ids": long}
    replay = {"trace_block_size": 16, "input_length": 16 * blocks, "input_sequence_hashes": long}
    dynamo = {"schema": "dynamo.request.trace.v1", "event_type": "request_end", "event_time_unix_ms": 1.7e12}
    dynamo["request"] = {"request_received_ms": 1_700_000_000_000, "output_tokens": 4, "replay": replay}
    request = {"t": 0.0, "type": "n", "in": 128, "out": 1, "hash_ids": [1, 2], "api_time": 1.0, "think_time": 0.5}
    agent = {"t": 9.0, "type": "subagent", "agent_id": "a", "duration_ms": 4, "requests": [request]}
    weka = {"id": "c", "block_size": 64, "hash_id_scope": "local", "requests": [request, agent, request]}
    simulator = {"block_size": 16, "hash_ids": long, "input_length": 16 * blocks}
    objects = np.zeros(9, OracleGeneralOpNsFormat.record)
    objects["time"], objects["id"], objects["size"], objects["next"] = range(9), range(9), 5, -1
    without_ops = objects[["time", "id", "size", "next"]].tolist()
    disk = [(n, 512, 1, 42, 256, n * 7, n * 1000) for n in range(9)]
    return {
        "bailian": json.dumps(bailian).encode() + b"\n",
        "dynamo-requests": json.dumps(dynamo).encode() + b"\n",
        "weka": json.dumps(weka).encode(),
        "kvcache-simulator": json.dumps(simulator).encode(),
        "tracelab": b"id,input_len,output_len,arrival_time,round_idx,prefix_len,tool_wait_after_ms\ns,40,3,5,0,0,9\n",
        "libcachesim-oracle": _records("libcachesim-oracle", without_ops),
        "libcachesim-oracle-opns": objects.tobytes(),
        "libcachesim-vscsi": _records("libcachesim-vscsi", disk),
        "libcachesim-csv": b"version,time,op,size,lbn\n1,5633898,2a,512,42932745\n",
        "libcachesim-txt": b"42932745\r\n7\r\n42932745",
    }


def _records(name: str, rows: list[tuple[int, ...]]) -> bytes:
    return np.array(rows, dict(formats())[name].record).tobytes()


@pytest.mark.parametrize("file", SHARED)
def test_a_real_file_is_one_formats(shared, file):
    assert guess_format(shared / "traces" / file, formats())[0] == SHARED[file]


def test_original_conversations_are_one_formats(shared, tmp_path):
    with tarfile.open(shared / "traces/kv-cache-tester/weka_original_sample.tar.gz") as archive:
        members = [member for member in archive if member.isfile()][:5]
        archive.extractall(tmp_path, members, filter="data")
    for member in members:
        assert guess_format(tmp_path / member.name, formats())[0] == "weka"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("blocks", [5, 20_000], ids=["short", "longer-than-the-head"])
def test_an_example_is_one_formats_and_can_be_imported(tmp_path, name, blocks):
    file = tmp_path / "example"
    file.write_bytes(examples(blocks)[name])
    found, format = guess_format(file, formats())
    assert found == name
    assert import_trace(file, tmp_path / "t.arrow", format=format).rows > 0
    assert format.facts().source_format == name


@cache
def material(name: str) -> bytes:
    """About 4 kB that the format reads: the head of a real file where there is one, and the example."""
    traces = Path(__file__).parents[3] / "shared" / "traces"
    for file, format in SHARED.items():
        if format == name and (traces / file).is_file():
            data = (traces / file).read_bytes()[:200_000]
            if data.startswith(b"\x1f\x8b"):
                data = gzip.GzipFile(traces / file).read(400_000)
            lines = data.splitlines(keepends=True) if b"\n" in data[:100_000] else [data]
            return min(lines[:2] or [data], key=len)[:100_000] if name == "weka" else data[:3_840]
    return examples()[name][:100_000]


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_damaged_files_are_read_or_refused(tmp_path_factory, name, data):
    text = bytearray(data.draw(st.sampled_from([material(name), examples()[name]]), label="file"))
    for _ in range(data.draw(st.integers(1, 4), label="edits")):
        at = data.draw(st.integers(0, max(len(text) - 1, 0)), label="at")
        length = data.draw(st.integers(0, 12), label="length")
        pieces = st.sampled_from(
            [b"-1", b"1e999", b"NaN", b"null", b"[[", b"{", b'"', b"\n", b"\xff", b"9" * 30, b"4294967295"]
        )
        text[at : at + length] = data.draw(st.one_of(st.binary(max_size=12), pieces), label="put")
    file = tmp_path_factory.getbasetemp() / "damaged"
    file.write_bytes(bytes(text))
    for skip in (False, True):
        format = dict(formats())[name]
        log = ReadLog(skip=skip)
        try:
            size = sum(batch.nbytes for batch in format.read(Lines(file), log))
        except KvbenchError as error:
            messages = [str(error)]
        else:
            messages = log.rejected.examples
            assert size < 100_000_000
            format.facts()
        assert all("\n" not in message for message in messages)
    for _, other in formats():
        other.sniff(bytes(text), "damaged")
