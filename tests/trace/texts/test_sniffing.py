"""Which format a text file is taken for, and what damage does."""

from __future__ import annotations

import contextlib
import gzip
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvbench.builtin_others import kvbench_trace_formats
from kvbench.errors import KvbenchError
from kvbench.trace.formats import ReadLog
from kvbench.trace.formats.text import Lines

MESSAGES = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]
SPAN = {
    "trace_id": "t",
    "span_id": "a",
    "start_time": "2026-02-25T10:00:00.5",
    "end_time": "2026-02-25T10:00:01Z",
    "attributes": {"gen_ai.input.messages": json.dumps(MESSAGES), "gen_ai.usage.input_tokens": 5},
}
OTLP_SPAN = {
    "traceId": "t",
    "spanId": "a",
    "startTimeUnixNano": "1772013600000000000",
    "attributes": [{"key": "gen_ai.input.messages", "value": {"stringValue": json.dumps(MESSAGES)}}],
}
OTLP = {"resourceSpans": [{"scopeSpans": [{"spans": [OTLP_SPAN]}]}]}
EXAMPLES = {
    "lmcache-agent": [
        {"timestamp": 1_760_995_991_633_938, "input": "user: hello", "output": "", "session_id": "s"},
        {"session_id": "s", "model": "m", "input": MESSAGES, "output_length": 5, "pre_gap": 0.5},
    ],
    "openai-chat": [
        {"timestamp": 1.5, "request": {"messages": MESSAGES}, "response": {"choices": [{"message": MESSAGES[1]}]}},
        {"custom_id": "1", "body": {"messages": MESSAGES}, "response": {"body": {"created": 5, "choices": []}}},
        {"created": 5, "messages": MESSAGES, "choices": [{"message": MESSAGES[1]}], "usage": {"prompt_tokens": 3}},
    ],
    "sharegpt": [{"id": "a", "conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]}],
    "wildchat": [{"conversation_hash": "h", "timestamp": "2023-04-09T00:02:53", "conversation": MESSAGES}],
    "otel": [{"spans": [SPAN]}, SPAN, OTLP],
}
CASES = [(name, example) for name, examples in EXAMPLES.items() for example in examples]


def takers(head: bytes, name: str = "t.jsonl") -> list[str]:
    return [spec.name for spec in kvbench_trace_formats() if spec.load()().sniff(head, name)]


@pytest.mark.parametrize(("name", "example"), CASES)
def test_exactly_one_format_takes_each_example(name, example):
    for text in (
        json.dumps(example) + "\n" + json.dumps(example),
        json.dumps([example]),
        json.dumps(example, indent=2),
    ):
        assert takers(text.encode()) == [name]
    longer = json.dumps(example).replace("hello", "hello " * 20_000)
    assert takers(longer.encode()[:65_536]) == [name]


def test_exactly_one_format_takes_each_real_text_file_and_none_of_mine_takes_another(shared, lmcache, spans):
    for path in [*lmcache.rglob("*.jsonl"), *spans]:
        if path.stat().st_size:
            assert takers(Lines(path).head()) == ["lmcache-agent" if path.suffix == ".jsonl" else "otel"], path
    for path in (shared / "traces").rglob("*"):
        if path.is_file() and path.parent.name not in ("lmcache-agent", "inference-perf"):
            assert not set(takers(Lines(path).head())) & set(EXAMPLES), path


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "t"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)


@st.composite
def damaged(draw) -> bytes:
    """An example with one value replaced, or one piece of its text replaced."""
    _, example = draw(st.sampled_from(CASES))
    value = json.loads(json.dumps(example))
    place, key = value, draw(st.sampled_from(sorted(value)))
    while isinstance(place[key], dict | list) and place[key] and draw(st.booleans()):
        place = place[key]
        key = draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
    if draw(st.booleans()):
        place[key] = draw(JSON)
        return json.dumps([value] if draw(st.booleans()) else value).encode()
    text = json.dumps(value).encode()
    start = draw(st.integers(0, len(text)))
    text = text[:start] + draw(st.binary(max_size=3)) + text[start + draw(st.integers(0, 4)) :]
    return gzip.compress(text)[: draw(st.integers(10, 400))] if draw(st.integers(0, 9)) == 0 else text


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(damaged())
def test_a_damaged_file_is_read_or_refused_with_our_own_error(scratch, data):
    scratch.write_bytes(data)
    for spec in kvbench_trace_formats():
        if spec.name not in EXAMPLES:
            continue
        for skip in (False, True):
            with contextlib.suppress(KvbenchError):
                for _ in spec.load()().read(Lines(scratch), ReadLog(skip=skip)):
                    pass
