"""Each foreign file looks like one format only, and damage to it raises nothing but kvbench's errors."""

from __future__ import annotations

from contextlib import suppress

import foreign
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvbench.builtin_others import kvbench_trace_formats
from kvbench.errors import KvbenchError
from kvbench.trace import import_trace
from kvbench.trace.formats.text import Lines
from kvbench.trace.members import Members

SHARED = {
    "traces/azure/AzureLLMInferenceTrace_code.csv.gz": "azure",
    "traces/azure/AzureLLMInferenceTrace_conv.csv.gz": "azure",
    "traces/vidur/arxiv_summarization_stats.csv.gz": "vidur",
    "golden/sample_lookup_hashes.jsonl": "lmcache-lookup",
    "traces/mooncake/conversation_trace.jsonl.gz": "mooncake",
    "traces/mooncake/synthetic_trace.jsonl.gz": "mooncake",
    "traces/mooncake/arxiv_trace_first20.jsonl": "mooncake",
}
MAPPED = {
    "csv": ("columns", "burstgpt", {"arrival": "Timestamp:s", "input": "Request tokens", "session": "Model"}),
    "dates": ("columns", "azure 2024", {"arrival": "TIMESTAMP:iso", "input": "ContextTokens"}),
    "epochs": ("columns", "lmcache-lookup", {"arrival": "timestamp:epoch", "ids": "chunk_hashes", "block_tokens": 256}),
    "labels": ("vllm-timed", "mooncake", {"multiplier": 0.001, "block_tokens": 512}),
    "bytes": ("mlperf-io", "mlperf-io", {"bytes_per_token": 4096}),
}
TOKENS = (
    *(b"", b"\x00", b"\xff", b"-", b'"', b",", b"\n", b"\r", b"null", b"[]", b"{}", b"NaN", b"true", b"1.5", b"0x"),
    *(b"1e999", b"1e-999999999", b"1e999999999", b"18446744073709551616", b"4294967295", b"9" * 30, b"\\ud800"),
    *(b"9223372036.854775808", b"2262-01-01 00:00:00", "٣".encode()),
)


def looks_like(head: bytes, name: str) -> list[str]:
    return [spec.name for spec in kvbench_trace_formats() if spec.load()().sniff(head, name)]


@pytest.mark.parametrize("what", foreign.FILES)
def test_an_example_looks_like_its_format_only(what):
    choice, data = foreign.FILES[what]
    assert looks_like(data, what) == [choice]


@pytest.mark.parametrize("path", SHARED)
def test_a_real_file_looks_like_its_format_only(shared, path):
    assert looks_like(Lines(shared / path).head(), path) == [SHARED[path]]


@pytest.mark.parametrize("path", ["libcachesim", "kv-cache-tester", "lmcache-agent", "tracelab", "inference-perf"])
def test_what_is_another_format_is_not_taken_for_one_of_these(shared, path):
    mine = {choice for choice, _ in foreign.FILES.values()} - {"mooncake"}
    for file in sorted((shared / "traces" / path).iterdir()):
        for lines in Members(file) if file.name.endswith(".tar.gz") else [Lines(file)]:
            assert not mine & set(looks_like(lines.head(), lines.name)), lines.name


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    case=st.sampled_from([*((what, None) for what in foreign.FILES), *((None, name) for name in MAPPED)]),
    damage=st.lists(
        st.tuples(st.floats(0, 1), st.sampled_from([0, 0, 1, 2, 5]), st.sampled_from(TOKENS)), min_size=1, max_size=5
    ),
    on_error=st.sampled_from(["fail", "skip"]),
)
def test_a_damaged_file_is_read_or_refused(tmp_path, case, damage, on_error):
    what, mapped = case
    if mapped is not None:
        choice, what, params = MAPPED[mapped]
        data = bytearray(foreign.FILES[what][1])
    else:
        (choice, data), params = foreign.FILES[what], {}
        data = bytearray(data)
    for place, length, token in damage:
        at = int(place * len(data))
        data[at : at + length] = token
    (tmp_path / "source").write_bytes(data)
    looks_like(bytes(data), "source")
    with suppress(KvbenchError):
        import_trace(
            tmp_path / "source",
            tmp_path / "t.arrow",
            format=foreign.make(choice, **params),
            on_error=on_error,
            force=True,
        )
