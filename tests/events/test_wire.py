"""vLLM's events on the wire, against batches that vLLM wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.errors import ArgumentError, TraceError
from kvbench.events import AllBlocksCleared, Batch, BlockRemoved, BlockStored, decode_batch, encode_batch
from kvbench.events.frames import END_OF_REPLAY, message, open_message
from kvbench.events.vllm import key_of

MAPS, NO_RANK, ARRAYS = "vllm_0.33.0_map_events", "vllm_0.33.0_no_dp_rank", "legacy_array_events"


@pytest.fixture(scope="module")
def golden() -> Any:
    path = Path(__file__).parents[3] / "shared/golden/golden_vllm.json"
    if not path.exists():
        pytest.skip(f"needs {path.name} of the shared folder")
    return json.loads(path.read_text())


def case(golden: Any, name: str) -> tuple[bytes, Any]:
    (found,) = (value for key, value in golden["kv_event_wire"].items() if key.startswith(name))
    return bytes.fromhex(found["payload_hex"]), found["decoded"]


def plain(value: Any) -> Any:
    """A golden value, its digests as bytes."""
    if isinstance(value, dict) and value.keys() == {"bytes_hex"}:
        return bytes.fromhex(value["bytes_hex"])
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("name", "layout"), [(MAPS, "map"), (NO_RANK, "map"), (ARRAYS, "array")])
def test_batches_of_vllm_are_read_and_written_byte_for_byte(golden: Any, name: str, layout: Any) -> None:
    payload, decoded = case(golden, name)
    ts, events, rank = plain(decoded)
    batch = decode_batch(payload)
    assert (batch.ts, batch.rank, batch.unknown) == (ts, rank, {})
    for event, told in zip(batch.events, events, strict=True):
        named = told if isinstance(told, dict) else dict(zip(["type", *event.__struct_fields__], told, strict=False))
        assert type(event).__name__ == named.pop("type")
        assert {name: getattr(event, name) for name in named} == named
    assert encode_batch(batch, layout) == payload


def test_maps_and_arrays_of_the_same_content_are_the_same_events(golden: Any) -> None:
    maps, arrays = (decode_batch(case(golden, name)[0]).events for name in (MAPS, ARRAYS))
    assert arrays == [
        msgspec.structs.replace(event, session_id=None) if "session_id" in event.__struct_fields__ else event
        for event in maps[:4]
    ]  # an array of that age has no room for the session


def test_a_digest_and_the_number_that_stands_for_it_are_one_key(golden: Any) -> None:
    events = decode_batch(case(golden, MAPS)[0]).events
    first, last = events[0], events[4]
    assert isinstance(first, BlockStored)
    assert isinstance(last, BlockStored)
    assert isinstance(last.block_hashes[0], int)
    assert key_of(first.block_hashes[0]) == key_of(last.block_hashes[0]) == 17507053300047258101
    assert key_of(-1) == 2**64 - 1


def test_frames_are_those_of_vllm(golden: Any) -> None:
    frames = golden["zmq_frames"]
    parts = message("kv@pod", 258, b"payload")
    assert parts[1].hex() == frames["seq_example_hex_for_258"]
    assert END_OF_REPLAY.hex() == frames["end_seq_hex"]


@pytest.mark.parametrize("before", [[], [b""], [b"", b"kv@pod"]])
def test_answers_of_a_replay_are_read_from_the_back(before: list[bytes]) -> None:
    topic = "kv@pod" if len(before) == 2 else ""
    assert open_message([*before, (7).to_bytes(8, "big"), b"x"]) == (topic, 7, b"x")
    assert open_message([*before, END_OF_REPLAY, b""]) is None


def test_short_arrays_of_other_engines_are_read() -> None:
    raw = [1.5, [["BlockStored", [1, 2], None, [3] * 8, 4], ["BlockRemoved", [1]], ["AllBlocksCleared"]]]
    assert decode_batch(msgspec.msgpack.encode(raw)) == Batch(
        1.5,
        [
            BlockStored([1, 2], None, [3] * 8, 4, None, None, None),
            BlockRemoved([1], None),
            AllBlocksCleared(),
        ],
    )


def test_what_a_later_version_adds_is_passed_over_and_counted() -> None:
    removed = {"type": "BlockRemoved", "block_hashes": [1], "medium": "GPU", "colour": "red"}
    raw = [
        1.0,
        [removed, {"type": "BlockMoved", "to": 3}, ["BlockRemoved", [2], "GPU", None, None, None, 1, 2]],
        0,
        "x",
    ]
    batch = decode_batch(msgspec.msgpack.encode(raw))
    assert batch.events == [BlockRemoved([1], "GPU"), BlockRemoved([2], "GPU")]
    assert batch.unknown == {"BlockRemoved.colour": 1, "BlockMoved": 1, "BlockRemoved[6:]": 2, "EventBatch": 1}


HASHES = st.integers(0, 2**64 - 1) | st.binary(min_size=16, max_size=32)
MEDIUMS = st.sampled_from(["GPU", "CPU", "STORAGE", None])
EVENTS = st.one_of(
    st.builds(
        BlockStored,
        st.lists(HASHES, min_size=1, max_size=4),
        st.none() | HASHES,
        st.lists(st.integers(0, 2**32 - 1), max_size=8),
        st.integers(1, 512),
        st.none() | st.integers(0, 9),
        MEDIUMS,
        st.none() | st.text(max_size=5),
        group_idx=st.none() | st.integers(0, 3),
    ),
    st.builds(BlockRemoved, st.lists(HASHES, max_size=4), MEDIUMS, group_idx=st.none() | st.integers(0, 3)),
    st.just(AllBlocksCleared()),
)


@given(
    st.builds(Batch, st.floats(0, 2e9), st.lists(EVENTS, max_size=5), st.none() | st.integers(0, 7)),
    st.sampled_from(["map", "array"]),
)
def test_what_is_written_is_read_again(batch: Batch, layout: Any) -> None:
    assert decode_batch(encode_batch(batch, layout)) == batch


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"\xc1", "is no msgpack"),
        ([], r"\[\] is no batch"),
        ([1.0, {}], r"\[1.0, {}\] is no batch"),
        (["now", []], "time 'now'"),
        ([1.0, [], "first"], "rank 'first'"),
        ([1.0, [3]], "3 is no event"),
        ([1.0, [["BlockStored", "a"]]], "BlockStored: Expected `array`"),
        ([1.0, [{"type": "BlockRemoved"}]], "BlockRemoved: Object missing required field `block_hashes`"),
    ],
)
def test_what_is_no_batch_is_one_clear_error(raw: Any, says: str) -> None:
    with pytest.raises(TraceError, match="^" + says):
        decode_batch(raw if isinstance(raw, bytes) else msgspec.msgpack.encode(raw))


def test_another_layout_is_refused() -> None:
    with pytest.raises(ArgumentError, match="layout 'list'"):
        encode_batch(Batch(0.0, []), "list")  # type: ignore[arg-type]
