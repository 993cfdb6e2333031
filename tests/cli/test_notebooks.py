"""Results in notebooks, and result files in pandas, Polars and DuckDB."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import kvbench
from kvbench.results.columnunits import UNITS_KEY
from kvbench.results.notebook import MAX_ROWS, table_html
from kvbench.trace.schema import TraceFacts
from tests.cli.conftest import Cli

ROOT = Path(__file__).parents[2]
CHAT = ROOT / "traces" / "chat.arrow"
COMPUTE = "fixed,prefill_ms_per_token=0.1,decode_ms=20"
SECTION = re.search(r"^## Notebooks and SQL\n(.*?)^## ", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
FILES = ("requests", "events", "timeline", "curve", "cells", "sweep", "sessions", "slices")
lacking = [name for name in ("pandas", "polars", "duckdb") if importlib.util.find_spec(name) is None]
needs_readers = pytest.mark.skipif(bool(lacking), reason=f"needs the extra 'notebook': no {', '.join(lacking)}")


def blocks(language: str) -> list[str]:
    """The code of a language in the README's section."""
    assert SECTION is not None
    return re.findall(rf"^```{language}\n(.*?)^```", SECTION[1], re.DOTALL | re.MULTILINE)


@pytest.fixture
def files(cli: Cli, tmp_path: Path) -> Path:
    """A folder with the files that the section's commands write, and two that are rolled up."""
    (tmp_path / "traces").symlink_to(ROOT / "traces")
    commands = [line.removeprefix("$ kvbench ") for line in blocks("console")[0].splitlines()]
    commands += ["sweep traces/chat.arrow --capacity 100,1k --policy arc --executor local,processes=1 -o sweep.parquet"]
    commands += ["rollup requests.parquet --by session -o sessions.parquet"]
    commands += ["rollup requests.parquet --by 60s -o slices.parquet"]
    for command in commands:
        run = cli(*shlex.split(command))
        assert (run.code, run.err) == (0, ""), command
    return tmp_path


class Checked(HTMLParser):
    """HTML whose tags are closed in order; keeps its tags, attributes and cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: set[tuple[str, str | None]] = set()
        self.texts: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.attributes |= set(attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A result of each kind, of a trace and a tier whose names are no good HTML."""
    folder = tmp_path_factory.mktemp("<b>runs")
    facts = TraceFacts(block_tokens=64, source_name="<script>alert(1)").to_metadata()
    trace = pa.ipc.open_file(CHAT).read_all().replace_schema_metadata(facts)
    with pa.OSFile(str(folder / "named.arrow"), "wb") as file, pa.ipc.new_file(file, trace.schema) as writer:
        writer.write_table(trace)
    runs = [str(folder / f"{name}&.parquet") for name in "ab"]
    timed: dict[str, Any] = {"compute": COMPUTE, "tiers": ["gpu,capacity=500", "cpu,capacity=2k"]}
    for path in runs:
        replayed = kvbench.replay(trace, output=path, **timed)
    return {
        "replay": replayed,
        "order": kvbench.replay(trace, capacity="10%"),
        "no ids": kvbench.replay(trace.drop_columns(["block_ids"])),
        "seeds": kvbench.replay_seeds(trace, compute="poly", workers=2, router="random", seeds=2, capacity=100),
        "matrix": kvbench.replay_matrix(trace, policy=["lru", "arc"], capacity=["1k", "10k"], belady="off"),
        "curve": kvbench.curve(trace, capacities="1k,10k"),
        "sweep": kvbench.sweep(CHAT, vary={"capacity": [100, 1000], "policy": ["lru", "arc"]}),
        "answer": kvbench.answer("reuse", str(folder / "named.arrow")),
        "comparison": kvbench.compare(*runs),
        "measured": kvbench.compare_measured(runs[0], runs[1]),
    }


KINDS = ("replay", "order", "no ids", "seeds", "matrix", "curve", "sweep", "answer", "comparison", "measured")


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_shows_itself_as_a_small_table_that_asks_for_nothing(results: dict[str, Any], kind: str) -> None:
    text = results[kind]._repr_html_()
    shown = Checked(text)
    assert len(text) < 20_000
    assert shown.attributes <= {("style", "text-align:left"), ("style", "text-align:right")}, "the theme's own colours"
    assert "<script" not in text
    assert not re.search(r"https?:|//", text)
    name = {"measured": "<b>runs", "sweep": "4 cells"}.get(kind, "<script>alert(1)")
    assert name in "".join(shown.texts)


def test_the_table_of_a_replay_has_its_figures(results: dict[str, Any]) -> None:
    texts = Checked(results["replay"]._repr_html_()).texts
    rate = results["replay"].rates["token"]
    assert texts[texts.index("token rate") + 1] == f"{100 * rate:.2f} %"
    assert "TTFT p99" in texts
    assert "all runs are equal" in Checked(results["comparison"]._repr_html_()).texts
    assert texts.count("token rate, infinite cache") == 1
    assert "lru *" in Checked(results["matrix"]._repr_html_()).texts


def test_a_long_table_says_what_it_leaves_out() -> None:
    text = table_html("c", ("a", "b"), [(str(at), "x") for at in range(MAX_ROWS + 3)])
    assert text.count("<tr>") == MAX_ROWS + 1
    assert "… 3 more rows" in text


@needs_readers
def test_the_examples_of_the_readme_run(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import duckdb

    monkeypatch.chdir(files)
    queries = [query for code in blocks("sql") for query in code.split(";") if query.strip()]
    assert len(queries) == 2
    for query in queries:
        assert len(duckdb.sql(query).fetchall()) > 1, query
    codes = blocks("python")
    assert len(codes) == 3
    for code in codes:
        exec(compile(code, "README.md", "exec"), {})
        assert capsys.readouterr().out.count("\n") > 1, code


@needs_readers
@pytest.mark.parametrize("reader", ["pandas", "polars", "duckdb"])
def test_every_result_file_is_read_with_all_its_rows_values_and_units(files: Path, reader: str) -> None:
    for name in FILES:
        path = files / f"{name}.parquet"
        table = pq.read_table(path)
        found, metadata = read(reader, path)
        assert list(found) == table.column_names
        for column in table.column_names:
            values = table[column]
            if pa.types.is_integer(values.type) and "uint64" not in str(values.type):
                assert int(found[column] or 0) == (pc.sum(values).as_py() or 0), (name, column)
        units = json.loads(metadata[UNITS_KEY])
        told = {field.name: (field.metadata or {}).get(b"unit", b"").decode() for field in table.schema}
        assert units == {column: unit for column, unit in told.items() if unit}
        assert json.loads(metadata["kvbench"])["kvbench"] == kvbench.__version__


def read(reader: str, path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """The sum of each column (None of those without), and the metadata of the file."""
    if reader == "pandas":
        import pandas as pd

        frame = pd.read_parquet(path)
        sums = {name: frame[name].sum() if frame[name].dtype.kind in "iuf" else None for name in frame.columns}
        return sums, {key.decode(): value.decode() for key, value in pq.read_metadata(path).metadata.items()}
    if reader == "polars":
        import polars as pl

        rows = pl.read_parquet(path)
        return {
            name: rows[name].sum() if rows[name].dtype.is_numeric() else None for name in rows.columns
        }, pl.read_parquet_metadata(path)
    import duckdb

    relation = duckdb.sql(f"SELECT * FROM '{path}'")
    numeric = [str(kind) in ("TINYINT", "INTEGER", "UINTEGER", "BIGINT", "DOUBLE") for kind in relation.types]
    asked = [f'sum("{name}")' if sums else "NULL" for name, sums in zip(relation.columns, numeric, strict=True)]
    values = duckdb.sql(f"SELECT {', '.join(asked)} FROM '{path}'").fetchall()[0]
    pairs = duckdb.sql(f"SELECT decode(key), decode(value) FROM parquet_kv_metadata('{path}')").fetchall()
    return dict(zip(relation.columns, values, strict=True)), dict(pairs)


@needs_readers
def test_rows_in_memory_are_read_without_a_file() -> None:
    import duckdb
    import polars as pl

    rows = kvbench.replay(CHAT, capacity=1000, keep_requests=True).requests
    assert rows is not None
    hits = pc.sum(rows["hit_tokens"]).as_py()
    assert rows.to_pandas()["hit_tokens"].sum() == hits
    assert pl.from_arrow(rows)["hit_tokens"].sum() == hits
    assert duckdb.sql("SELECT sum(hit_tokens) FROM rows").fetchall() == [(hits,)]
