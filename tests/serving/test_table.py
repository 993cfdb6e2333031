"""Times looked up in measured grids, and what is said of files that are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kvbench.errors import ConfigError
from kvbench.serving.compute import ComputeContext
from kvbench.serving.tables import make_table
from kvbench.serving.timetable import Timetable


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def table(extrapolate: bool = False, **files: str) -> Timetable:
    """``table`` over files with these texts."""
    for name, text in files.items():
        Path(f"{name}.csv").write_text(text)
    return make_table(ComputeContext(), extrapolate=extrapolate, mix="sum", **{name: f"{name}.csv" for name in files})


LINE = "new_tokens,ms\n100,10\n300,20\n1100,100\n"
PLANE = "new_tokens,context_tokens,us\n0,0,1\n0,1000,101\n100,0,1001\n100,1000,3001\n"


def test_a_line_is_interpolated_over_the_new_tokens_of_the_step() -> None:
    made = table(prefill=LINE)
    assert [made.prefill_time_ns(n) / 1e6 for n in (100, 200, 300, 500, 1_100)] == [10, 15, 20, 40, 100]
    assert made.step_time_ns([(100, 0, 0), (100, 7, 7)]) == 15_000_000


def test_a_plane_is_interpolated_over_new_tokens_and_context_of_each_chunk() -> None:
    made = table(prefill=PLANE)
    corners = [(100, 0), (100, 1_000), (50, 1_000), (50, 500)]
    assert [made.prefill_time_ns(*corner) for corner in corners] == [1_001_000, 3_001_000, 1_551_000, 1_026_000]
    assert made.step_time_ns([(50, 500, 0)] * 2) == 2_052_000


def test_decodes_are_looked_up_by_requests_or_their_context() -> None:
    by_requests = table(decode="decodes,context_tokens,ms\n1,100,5\n1,300,7\n9,100,13\n9,300,15\n")
    assert by_requests.step_time_ns([], 5, 5 * 200) == 10_000_000
    by_context = table(decode="decode_context,seconds\n0,0.01\n1000,0.02\n")
    assert by_context.step_time_ns([], 5, 500) == 15_000_000


def test_parquet_is_a_table_too() -> None:
    rows = pa.table({"new_tokens": [1, 11], "ns": [1_000, 2_000]})
    pq.write_table(rows, "t.parquet")
    made = make_table(ComputeContext(), extrapolate=False, mix="sum", prefill="t.parquet")
    assert made.prefill_time_ns(6) == 1_500


@pytest.mark.parametrize(("tokens", "shown"), [(99, "99"), (1_101, "1101")])
def test_beyond_what_was_measured_is_an_error(tokens: int, shown: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"prefill.csv: new_tokens = {shown} is beyond .* 100 to 1100; .*extrapolate"
    ):
        table(prefill=LINE).prefill_time_ns(tokens)


def test_on_request_the_outermost_pieces_go_on_but_not_below_0() -> None:
    made = table(extrapolate=True, prefill=LINE)
    assert [made.prefill_time_ns(n) / 1e6 for n in (20, 2_100)] == [6, 200]
    assert table(extrapolate=True, prefill="new_tokens,ms\n100,1\n200,50\n").prefill_time_ns(1) == 0


def test_a_part_without_a_table_is_an_error() -> None:
    with pytest.raises(ConfigError, match="has a decode part, of which there is no table; give decode=FILE"):
        table(prefill=LINE).step_time_ns([], 1, 10)
    with pytest.raises(ConfigError, match="has a prefill part"):
        table(decode="decodes,ms\n1,5\n").prefill_time_ns(1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no rows"),
        ("new_tokens,ms\n", "has no rows"),
        ("new_tokens,ms\n5,x\n", "prefill.csv, row 1, ms = 'x': must be a number"),
        ("new_tokens,ms\n5,1\n6.5,2\n", "row 2, new_tokens = '6.5': must be a whole number, at least 0"),
        ("new_tokens,ms\n5,1\n-6,2\n", "row 2, new_tokens = '-6': must be a whole number"),
        ("new_tokens,ms\n5,1\n6,0\n", "row 2, ms = '0': a time is above 0"),
        ("new_tokens,ms\n5,1\n6,\n", "row 2: ms is missing"),
        ("new_tokens,ms\n5\n", "row 1: has 1 cells, but the header names 2 columns"),
        ("new_tokens,ms,us\n5,1,1\n", r"more than one column of times \(ms, us\)"),
        ("new_tokens,t\n5,1\n", "no column of times .* the columns are new_tokens, t"),
        ("tokens,ms\n5,1\n", "row 1: new_tokens is missing"),
        ("ms,ms\n5,1\n", "two columns have one name"),
        ("new_tokens,ms\n5,1\n5,2\n", "two rows are of new_tokens = 5; keep one, or their mean"),
        (
            PLANE.rsplit("\n", 2)[0],
            "there is no row of new_tokens = 100, context_tokens = 1000; a table is a full grid",
        ),
    ],
)
def test_a_file_that_is_no_grid_names_file_row_and_value(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        table(prefill=text)


def test_a_file_that_is_no_text_or_no_parquet_is_an_error() -> None:
    Path("a.csv").write_bytes(b"\xff\xfe\x00")
    Path("a.parquet").write_bytes(b"PAR1 not")
    settings: dict[str, Any] = {"extrapolate": False, "mix": "sum"}
    for name, message in (("a.csv", "is not UTF-8 text"), ("a.parquet", "not a Parquet file")):
        with pytest.raises(ConfigError, match=f"{name}: {message}"):
            make_table(ComputeContext(), prefill=name, **settings)
