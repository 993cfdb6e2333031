"""OpenTelemetry spans: calls, who waits for whom, and sessions made of that."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from kvbench.errors import TraceError
from kvbench.trace.formats import ReadLog
from kvbench.trace.formats.otel import OtelFormat
from kvbench.trace.formats.text import Lines

SPANS = {
    "code_review_workflow": 15,
    "customer_support_escalation": 9,
    "fan_in_dependencies": 4,
    "multi_agent_research": 12,
    "parallel_requests": 5,
    "prefix_sharing_example": 7,
    "simple_chain": 3,
    "simple_chain_alt": 3,
    "software_architecture_review": 15,
}


def span(name, start, end, *contents, said="", session="s", **attributes):
    """A call from ``start`` to ``end`` (seconds) with these messages."""
    messages = [{"role": "user", "content": text} for text in contents]
    return {
        "trace_id": "t",
        "span_id": name,
        "start_time": f"2026-02-25T10:00:{start:09.6f}",
        "end_time": f"2026-02-25T10:00:{end:09.6f}",
        "attributes": {
            "exgentic.session.id": session,
            "gen_ai.request.model": "gpt-4",
            "gen_ai.input.messages": json.dumps(messages),
            "gen_ai.output.text": said,
            **attributes,
        },
    }


def test_the_real_files_have_the_measured_numbers_of_spans(spans):
    format, log = OtelFormat(), ReadLog()
    tables = {path.stem: pa.Table.from_batches(list(format.read(Lines(path), log))) for path in spans}
    assert {name: table.num_rows for name, table in tables.items()} == SPANS
    assert sum(SPANS.values()) == 73
    chain = tables["simple_chain"].to_pylist()
    assert [row["think_time_ns"] for row in chain] == [None, 500_000_000, 1_000_000_000]
    assert {row["session_id"] for row in chain} == {"session"}
    # The same session in another file is another conversation.
    assert {row["session_id"] for row in tables["simple_chain_alt"].to_pylist()} == {"session/capital_question"}
    joined = tables["fan_in_dependencies"].to_pylist()
    assert [(row["session_id"], row["turn"]) for row in joined] == [
        ("session_003", 0),
        ("session_003/span_002", 0),
        ("session_003/span_003", 0),
        ("session_003/span_003", 1),
    ]
    assert log.carried["note on usage"].startswith("in 7 rows the log states the length of the prompt")


def test_a_call_waits_for_the_one_whose_output_it_holds_and_a_second_one_begins_a_session(read):
    log = ReadLog()
    plan = "first do this, then do that"
    rows = read(
        OtelFormat(),
        span("root", 0, 2, "go", said=plan),
        span("left", 3, 4, f"the plan is: {plan}", said="left is done by now"),
        span("right", 3.5, 6, plan, said="right is done by now"),
        span("join", 8, 9, "left is done by now", "right is done by now"),
        span("early", 1, 2, plan),
        span("stranger", 8, 9, plan, session="other"),
        log=log,
    )
    by_name = {row["request_id"]: (row["session_id"], row["turn"], row["think_time_ns"]) for row in rows}
    assert by_name == {
        "root": ("s", 0, None),
        "left": ("s", 1, 1_000_000_000),
        "right": ("s/right", 0, None),
        "join": ("s/right", 1, 2_000_000_000),
        "early": ("s/early", 0, None),
        "stranger": ("other", 0, None),
    }
    assert log.carried["note on branches"].startswith("1 calls wait for a call that another one goes on with already")


def test_a_long_pause_is_cut(read):
    calls = (span("a", 0, 1, "go", said="a long enough answer"), span("b", 31, 32, "a long enough answer"))
    assert read(OtelFormat(), *calls)[1]["think_time_ns"] == 15_000_000_000
    log = ReadLog()
    assert read(OtelFormat(max_gap_ms=100), *calls, log=log)[1]["think_time_ns"] == 100_000_000
    assert log.carried["note on gaps"] == "1 think times were cut to 100 ms"


def test_a_document_and_lines_of_spans_are_the_same(read):
    calls = [span("a", 0, 1, "go", said="x"), span("b", 2, 3, "went")]
    by_line = read(OtelFormat(), *calls)
    assert read(OtelFormat(), json.dumps({"spans": calls}, indent=1)) == by_line


def test_spans_that_are_no_calls_are_counted_and_messages_of_newer_conventions_are_read(read):
    parts = json.dumps([{"role": "user", "parts": [{"type": "text", "content": "go"}]}])
    new = span("b", 0, 1, **{"gen_ai.input.messages": parts})
    log = ReadLog()
    rows = read(OtelFormat(), {"spans": [{"span_id": "http", "attributes": {}}, new, span("c", 0, 1, "go")]}, log=log)
    assert rows[0]["token_ids"] == rows[1]["token_ids"]
    assert log.ignored_fields == {"spans without input messages": 1}


def otlp(*calls):
    """The calls as a collector writes them."""
    return {
        "resourceSpans": [
            {
                "scopeSpans": [
                    {
                        "spans": [
                            {
                                "traceId": call["trace_id"],
                                "spanId": call["span_id"],
                                "startTimeUnixNano": "1772013600000000000",
                                "endTimeUnixNano": "1772013601000000000",
                                "attributes": [
                                    {"key": key, "value": {"stringValue": value}}
                                    for key, value in call["attributes"].items()
                                ]
                                + [{"key": "gen_ai.usage.input_tokens", "value": {"intValue": "7"}}],
                            }
                            for call in calls
                        ]
                    }
                ]
            }
        ]
    }


def test_what_a_collector_writes_is_the_same(read):
    log = ReadLog()
    assert read(OtelFormat(), otlp(span("a", 0, 1, "go")), log=log) == read(OtelFormat(), span("a", 0, 1, "go"))
    assert "7 tokens in all" in log.carried["note on usage"]
    broken = otlp(span("a", 0, 1, "go"))
    broken["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["startTimeUnixNano"] = "soon"
    with pytest.raises(TraceError, match="startTimeUnixNano = 'soon': must be a number of nanoseconds since 1970"):
        read(OtelFormat(), broken)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"start_time": None}, "start_time = None: must be a number, or a time like"),
        ({"attributes": 5}, "attributes = 5: must be an object"),
        ({"attributes": {"gen_ai.input.messages": "[1]"}}, "must be a list of messages"),
        ({"attributes": {"gen_ai.input.messages": "[{"}}, "gen_ai.input.messages = .*: is not valid JSON"),
    ],
)
def test_a_bad_span_is_told_by_its_place(read, change, message):
    good = span("a", 0, 1, "go")
    with pytest.raises(TraceError, match=f"row 2, .*{message}"):
        read(OtelFormat(), {"spans": [good, good | change]})
