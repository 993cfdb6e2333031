"""Azure, BurstGPT, Vidur, AIBrix, RouteSim, benchmark inputs, MLPerf's I/O log: what is read of each."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import foreign
import pyarrow as pa
import pytest

import kvbench
from kvbench.errors import ConfigError, TraceError
from kvbench.trace import import_trace, open_trace
from kvbench.trace.importer import ImportReport

S = 10**9


def imported(tmp_path, choice: str, data: bytes, on_error: str = "fail", **params) -> tuple[list[dict], ImportReport]:
    """The rows and the report of an import."""
    (tmp_path / "source").write_bytes(data)
    target = tmp_path / "t.arrow"
    format = foreign.make(choice, **params)
    report = import_trace(tmp_path / "source", target, format=format, force=True, on_error=on_error)
    return pa.Table.from_batches(list(open_trace(target).batches())).to_pylist(), report


def of(name: str) -> tuple[str, bytes]:
    return foreign.FILES[name]


@pytest.mark.parametrize(
    ("name", "rows", "inputs", "outputs", "mean_input", "mean_output", "span_s"),
    [
        ("code", 8_819, 18_059_974, 245_896, 2047.848282118154, 27.88252636353328, 3_436),
        ("conv", 19_366, 22_361_870, 4_088_665, 1154.6974078281523, 211.12594237323142, 3_502),
    ],
)
def test_azure_2023_has_the_sums_and_means_that_were_measured(
    shared, tmp_path, name, rows, inputs, outputs, mean_input, mean_output, span_s
):
    source = shared / "traces" / "azure" / f"AzureLLMInferenceTrace_{name}.csv.gz"
    report = import_trace(source, tmp_path / "t.arrow", format=foreign.make("azure"))
    table = pa.Table.from_batches(list(open_trace(tmp_path / "t.arrow").batches()))
    prompts, answers = table["input_tokens"].to_numpy(), table["output_tokens"].to_numpy()
    assert (report.rows, report.distinct_blocks, report.decreasing_steps) == (rows, None, 0)
    assert (prompts.sum(), answers.sum(), prompts.mean(), answers.mean()) == (inputs, outputs, mean_input, mean_output)
    arrivals = table["arrival_ns"].to_numpy()
    assert arrivals[0] == 0
    assert round(arrivals[-1] / S) == span_s


def test_vidurs_lengths_have_the_means_that_were_measured(shared, tmp_path):
    source = shared / "traces" / "vidur" / "arxiv_summarization_stats.csv.gz"
    report = import_trace(source, tmp_path / "t.arrow", format=foreign.make("vidur", rate=10.0))
    table = pa.Table.from_batches(list(open_trace(tmp_path / "t.arrow").batches()))
    prompts, answers = table["input_tokens"].to_numpy(), table["output_tokens"].to_numpy()
    assert report.rows == 28_257
    assert (round(prompts.mean(), 2), round(answers.mean(), 2)) == (2588.08, 291.43)
    assert (prompts.min(), prompts.max(), answers.min(), answers.max()) == (1, 4054, 5, 4056)
    assert table["arrival_ns"].to_pylist()[-1] == 28_256 * S // 10


@pytest.mark.parametrize(
    ("name", "arrivals"), [("azure 2023", [0, 52_000_000]), ("azure 2024", [0, 990_070_000]), ("azure 2025", [0])]
)
def test_azures_clock_is_read_to_the_last_digit_with_and_without_a_zone(tmp_path, name, arrivals):
    rows, _ = imported(tmp_path, *of(name))
    assert [row["arrival_ns"] for row in rows] == arrivals


def test_azures_images_are_told_to_be_left_out(tmp_path):
    _, report = imported(tmp_path, *of("azure 2025"))
    assert report.ignored_fields == {"NumImages": 1}


@pytest.mark.parametrize(("failed", "answers"), [("keep", [18, 0, 276]), ("drop", [18, 276])])
def test_a23_failed_requests_of_burstgpt_are_kept_or_dropped_and_counted_either_way(tmp_path, failed, answers):
    rows, report = imported(tmp_path, *of("burstgpt"), failed=failed)
    assert [row["output_tokens"] for row in rows] == answers
    assert any("1 requests failed" in note for note in report.notes)
    assert rows[0] == {
        "arrival_ns": 5 * S,
        "input_tokens": 472,
        "output_tokens": 18,
        "model": "ChatGPT",
        "type": "Conversation log",
    }


def test_burstgpts_sessions_have_turns_and_the_pause_since_the_last_answer(tmp_path):
    rows, _ = imported(tmp_path, *of("burstgpt part 3"))
    told = [(row["session_id"], row["turn"], row["think_time_ns"]) for row in rows]
    assert told == [("s-1", 0, None), ("s-1", 1, 2 * S), ("s-2", 0, None), ("s-1", 2, 0), (None, None, None)]


def test_a24_vidurs_old_and_new_columns_are_read_and_an_unknown_one_lists_the_mapping(tmp_path):
    new, _ = imported(tmp_path, *of("vidur replay"))
    assert [(row["arrival_ns"], row["input_tokens"], row["output_tokens"]) for row in new] == [
        (250_000_000, 100, 5),
        (1_500_000_000, 200, 7),
    ]
    plain = b"Date,Time,PromptTokenCount,CompletionTokenCount\n2023-07-01,36000.5,1,1\n2023-07-02,00:00:01,2,2\n"
    old, _ = imported(tmp_path, "vidur", plain)
    assert [row["arrival_ns"] for row in old] == [0, (14 * 3600 + 1) * S - S // 2]
    with pytest.raises(TraceError, match=r"unknown column 'colour'; columns are read so: num_prefill_tokens or Prompt"):
        imported(tmp_path, "vidur", b"num_prefill_tokens,num_decode_tokens,colour\n1,1,1\n")


def test_a24_what_is_longer_than_the_model_takes_is_rejected_or_clipped_and_counted(tmp_path):
    data = b"num_prefill_tokens,num_decode_tokens\n9000,10\n100,10\n5,9000\n"
    rows, report = imported(tmp_path, "vidur", data, on_error="skip", max_tokens=8192)
    assert ([row["input_tokens"] for row in rows], report.skipped) == ([100], 2)
    rows, report = imported(tmp_path, "vidur", data, on_error="skip", max_tokens=8192, too_long="clip")
    assert ([row["input_tokens"] for row in rows], report.skipped) == ([8182, 100], 1)
    assert any("1 prompts were clipped to max_tokens=8,192" in note for note in report.notes)


def test_lengths_without_arrivals_arrive_at_once_and_say_so_or_evenly_spaced(tmp_path):
    rows, report = imported(tmp_path, *of("vidur lengths"))
    assert [row["arrival_ns"] for row in rows] == [0, 0]
    assert any("has no arrivals, so all requests arrive at 0" in note for note in report.notes)
    rows, report = imported(tmp_path, *of("vidur lengths"), rate=3.0)
    assert [row["arrival_ns"] for row in rows] == [0, 333_333_333]
    assert not any("has no arrivals" in note for note in report.notes)
    with pytest.raises(ConfigError, match="rate and interval_s say the same"):
        foreign.make("vidur", rate=1.0, interval_s=1.0)
    with pytest.raises(ConfigError, match="has arrivals of its own"):
        imported(tmp_path, *of("vidur replay"), rate=1.0)


def test_vidurs_total_is_checked(tmp_path):
    with pytest.raises(TraceError, match="row 2, num_total_tokens = 4: is not the sum of prompt and answer, 3"):
        imported(tmp_path, "vidur", b"num_prefill_tokens,num_decode_tokens,num_total_tokens\n1,2,4\n")


def test_all_requests_of_a_line_of_aibrix_arrive_together(tmp_path):
    rows, _ = imported(tmp_path, *of("aibrix"))
    told = [(row["arrival_ns"], row["input_tokens"], row["output_tokens"], row["session_id"]) for row in rows]
    assert told == [(0, 1, None, None), (30_000_000, 9, 3, "4"), (30_000_000, 9, 3, "4")]


def test_an_aibrix_prompt_without_a_length_is_refused_or_estimated(tmp_path):
    data = foreign.jsonl({"timestamp": 1, "requests": [{"prompt": "Grüße!!"}]})
    with pytest.raises(TraceError, match="row 1, prompt_length = None: the prompt's text is not counted without"):
        imported(tmp_path, "aibrix", data)
    rows, report = imported(tmp_path, "aibrix", data, bytes_per_token=3.0)
    assert rows[0]["input_tokens"] == 3
    assert any("1 prompt lengths were estimated from 3 bytes a token" in note for note in report.notes)


def test_prompts_of_routesim_share_the_full_blocks_of_their_prefix(tmp_path):
    rows, _ = imported(tmp_path, *of("routesim"))
    assert [row["block_ids"] for row in rows] == [[0, 1, 2, 3, 4, 5], [0, 1, 6, 7], [8, 9]]
    assert [(row["adapter"], row["session_id"], row["priority"]) for row in rows] == [
        (None, None, None),
        ("l", None, None),
        (None, "c", 2),
    ]
    too_long = foreign.jsonl({"ts": 0, "prompt_tokens": 10, "prefix_hash": "p", "prefix_len": 11})
    with pytest.raises(TraceError, match="prefix_len = 11: is more than the prompt has, 10"):
        imported(tmp_path, "routesim", too_long)


def test_a16_vllms_times_are_seconds_unless_multiplied_and_hits_do_not_depend_on_it(tmp_path):
    data = foreign.jsonl({"t": 1500, "n": 20, "o": 1, "h": [3, 4]}, {"t": 3000.5, "n": 20, "o": 1, "h": [3, 5]})
    labels = {"time": "t", "input": "n", "output": "o", "ids": "h"}
    seconds, _ = imported(tmp_path, "vllm-timed", data, **labels)
    milliseconds, _ = imported(tmp_path, "vllm-timed", data, multiplier=0.001, **labels)
    assert [row["arrival_ns"] for row in seconds] == [1500 * S, 3000 * S + S // 2]
    assert [row["arrival_ns"] * 1000 for row in milliseconds] == [row["arrival_ns"] for row in seconds]
    assert [row["block_ids"] for row in milliseconds] == [row["block_ids"] for row in seconds] == [[0, 1], [0, 2]]
    with pytest.raises(TraceError, match="there is no column 'tt'; did you mean 't'"):
        imported(tmp_path, "vllm-timed", data, **labels | {"time": "tt"})


def test_sglangs_prompts_fill_their_blocks_and_times_stretch(tmp_path):
    rows, report = imported(tmp_path, *of("sglang-bench"), slowdown=2.0)
    assert [(row["arrival_ns"], row["input_tokens"]) for row in rows] == [(54_964_000_000, 1024)]
    assert any("fill their last block" in note for note in report.notes)


def test_objects_of_mlperfs_log_are_blocks_and_what_evictions_move_is_left_out(tmp_path):
    rows, report = imported(tmp_path, *of("mlperf-io"))
    told = [(row["arrival_ns"], row["type"], row["input_tokens"], row["block_ids"]) for row in rows]
    assert told == [(0, "Write", 1, [0]), (249_999_000, "Read", 1, [0]), (999_999_000, "Read", 1, [1])]
    assert any("1 operations of evictions were left out" in note for note in report.notes)
    rows, _ = imported(tmp_path, *of("mlperf-io"), bytes_per_token=65_536, operations="read")
    assert [(row["input_tokens"], row["block_ids"]) for row in rows] == [(16, [0]), (32, [1, 2])]


@pytest.mark.parametrize(
    ("choice", "data", "message"),
    [
        (
            "azure",
            b"TIMESTAMP,ContextTokens,GeneratedTokens\n\n2023-11-16 18:17:03,NaN,1\n",
            "row 3, ContextTokens = 'N",
        ),
        ("azure", b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,5\n", "row 2, row = .*: has 2 values"),
        ("azure", b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,,1\n", "ContextTokens = None: is mis"),
        ("azure", b"TIMESTAMP,ContextTokens,GeneratedTokens\n\n", "has no rows"),
        ("azure", b"TIMESTAMP,TIMESTAMP\n1,1\n", "column = 'TIMESTAMP': stands twice"),
        ("azure", b"TIMESTAMP,ContextToken\n1,1\n", "no column 'ContextTokens'; did you mean 'ContextToken'"),
        (
            "burstgpt",
            foreign.BURST.replace("\n5,Chat", "\ninf,Chat").encode(),
            "row 2, Timestamp = 'inf': must be a finite",
        ),
        (
            "burstgpt",
            foreign.BURST.replace("\n5,Chat", "\n-5,Chat").encode(),
            "row 2, arrival_ns = -5000000000: must not be",
        ),
        ("burstgpt", foreign.BURST.encode().replace(b"API", b"\xffAPI"), "row 3, Log Type = .*: must be UTF-8 text"),
        ("burstgpt", foreign.BURST.encode() + b"\xff\n", "row 5, row = .*: has 1 values, and the first line has 6"),
        ("mlperf-io", foreign.MLPERF.replace("Write", "Erase").encode(), "row 2, Operation = 'Erase': must be Read or"),
        ("mlperf-io", foreign.MLPERF.replace("user-2", "").encode(), "row 5, Key = None: is missing"),
        ("aibrix", foreign.jsonl({"timestamp": 1, "requests": 3}), "row 1, requests = 3: must be a list"),
        ("aibrix", foreign.jsonl({"timestamp": 1, "requests": [3]}), "row 1, requests = 3: must be an object"),
        ("routesim", b'{"ts": NaN, "prompt_tokens": 1}', "row 1, line = .*: NaN and Infinity are no numbers"),
        (
            "sglang-bench",
            foreign.jsonl({"timestamp": 1, "hash_ids": []}),
            "hash_ids = 0: there must be one id at least",
        ),
    ],
)
def test_a18_a20_a_bad_row_is_told_with_its_place(tmp_path, choice, data, message):
    with pytest.raises(TraceError, match=message) as caught:
        imported(tmp_path, choice, data)
    assert "\n" not in str(caught.value)


def test_rows_keep_their_numbers_around_blank_and_broken_ones(tmp_path):
    text = "".join(f"{row},m,{row},1,1,x\n" if row % 7 else "\nbroken\n" for row in range(1, 60))
    header = foreign.BURST.splitlines()[0] + "\n"
    _, report = imported(tmp_path, "burstgpt", (header + text + "nan,m,1,1,1,x").encode(), on_error="skip")
    assert report.skipped == 9
    assert "row 9, row = 'broken'" in report.skipped_examples[0]
    with pytest.raises(TraceError, match="row 69, Timestamp = 'nan'"):
        imported(tmp_path, "burstgpt", (header + text.replace("broken", "") + "nan,m,1,1,1,x").encode())


def test_a20_shards_in_the_wrong_order_are_one_trace_with_one_origin(tmp_path):
    header = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    for name, seconds in (("part-1.csv", range(5, 10)), ("part-2.csv", range(5))):
        lines = (f"2024-05-10 00:00:0{second}+00:00,{second + 1},1\n" for second in seconds)
        (tmp_path / name).write_text(header + "".join(lines))
    import_trace(tmp_path / "*.csv", tmp_path / "t.arrow", format=foreign.make("azure"))
    table = pa.Table.from_batches(list(open_trace(tmp_path / "t.arrow").batches()))
    assert table["arrival_ns"].to_pylist() == [second * S for second in range(10)]
    assert table["input_tokens"].to_pylist() == list(range(1, 11))


def test_a14_without_ids_hits_are_unknown_and_queues_are_not(tmp_path):
    imported(tmp_path, *of("azure 2023"))
    result = kvbench.replay(tmp_path / "t.arrow", compute="fixed,prefill_ms_per_token=1,decode_ms=20")
    assert set(result.summary["rates"].values()) == {None}
    assert result.summary["timed"]["ttft_ns"]["mean"] > 4 * S


HUGE = {
    "routesim": b"".join(b'{"ts":%d,"prompt_tokens":1048575}\n' % row for row in range(200)),
    "routesim of prefixes": b"".join(
        b'{"ts":1,"prompt_tokens":1048575,"prefix_hash":"%d","prefix_len":1048575}\n' % row for row in range(130)
    ),
    "mlperf-io,bytes_per_token=1": b"Timestamp,Operation,Object_Size_Bytes,Tier,Key,Phase\n"
    + b"".join(b"%d,Read,524288,t,k%d,p\n" % (row, row) for row in range(400)),
    "tracelab": b"session_id,prefix_len,input_len,output_len\n" + b"s,2000000,64,0\n" * 130,
    "mooncake-delta": b"".join(
        b'{"session_id":1,"timestamp":1,"input_length":1,"output_length":%d,"hash_ids":[%d]}\n' % (tokens, tokens)
        for tokens in (60_000_000, *range(130))
    ),
}
MOST_MIB = 300


@pytest.mark.parametrize("case", HUGE)
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process is read from /proc")
def test_ten_kilobytes_that_claim_huge_prompts_stay_below_300_mib(tmp_path, case):
    source, target = tmp_path / "source", tmp_path / "t.arrow"
    source.write_bytes(HUGE[case])
    assert len(HUGE[case]) <= 12_000
    # Not getrusage: its peak counts what this process had when it started the other one.
    code = (
        "import re, sys\n"
        "from pathlib import Path\n"
        "from kvbench.cli import main\n"
        "try:\n"
        "    main(sys.argv[1:])\n"
        "finally:\n"
        "    status = Path('/proc/self/status').read_text()\n"
        "    print(re.search(r'VmHWM:\\s+(\\d+) kB', status)[1], file=sys.stderr)\n"
    )
    choice = case.split(" ")[0]
    command = [sys.executable, "-c", code, "trace", "import", str(source), "--format", choice, "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stderr.splitlines()[-1]) < MOST_MIB << 10
    assert target.exists()
