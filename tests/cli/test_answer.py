"""``kvbench answer``: what all questions share."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import kvbench
from kvbench.answers.cells import plain
from kvbench.answers.recipes import RECIPES
from kvbench.cli.answer import COMMANDS
from kvbench.results.parquet import read_manifest
from tests.cli.conftest import Cli


def test_help_lists_every_question_in_words_and_each_has_examples(cli: Cli) -> None:
    assert list(COMMANDS) == list(RECIPES)
    text = cli("answer", "--help").out
    for name, recipe in RECIPES.items():
        assert f"{name} " in text
        assert recipe.question in text
        assert f"kvbench answer {name} " in cli("answer", name, "--help").out


def test_an_unknown_question_is_one_line_with_those_that_are_known(cli: Cli) -> None:
    run = cli("answer", "drum", "chat.arrow")
    assert (run.code, run.out) == (2, "")
    assert run.err.startswith("error: unknown question 'drum'; did you mean 'dram'? (known: reuse, dram, nvme, ")
    assert run.err.count("\n") == 1


@pytest.mark.parametrize("question", ["reuse", "dram"])
def test_a_folder_gets_each_table_twice_each_chart_and_the_answer(
    cli: Cli, sample: Path, tmp_path: Path, question: str
) -> None:
    pytest.importorskip("altair")
    folder = tmp_path / "found"
    run = cli("answer", question, sample, "-o", folder, "--png", "--svg")
    assert run.code == 0, run.err
    answer = json.loads((folder / "answer.json").read_text())
    assert answer["question"] == question
    assert answer["advice"][0] in run.out
    assert answer["tables"]
    for name, rows in answer["tables"].items():
        assert pq.read_table(folder / f"{name}.parquet").to_pylist() == rows
        assert pacsv.read_csv(folder / f"{name}.csv").num_rows == len(rows)
        assert read_manifest(folder / f"{name}.parquet")["trace"] == answer["trace"]
    charts = {path.stem for path in folder.glob("*.html")}
    assert charts
    assert charts == {path.stem for path in folder.glob("*.png")} == {path.stem for path in folder.glob("*.svg")}
    assert sorted(f"wrote {path}" for path in folder.iterdir()) == sorted(
        line for line in run.out.splitlines() if line.startswith("wrote ")
    )


def test_without_the_libraries_that_draw_there_are_tables_and_a_note(
    cli: Cli, sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvbench.report.charts.NEEDED", {"no_such_library": "no-such-library"})
    run = cli("answer", "reuse", sample, "-o", "found")
    assert run.code == 0
    assert run.err == "note: no charts without no-such-library: pip install 'kvbench[report]'\n"
    assert {path.suffix for path in (tmp_path / "found").iterdir()} == {".parquet", ".csv", ".json"}
    refused = cli("answer", "reuse", sample, "-o", "other", "--png")
    assert refused.code == 2
    assert refused.err.startswith("error: --png needs no-such-library; install it with")


def test_an_answer_is_the_same_bytes_again_and_replaces_no_other(cli: Cli, sample: Path, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        assert cli("answer", "reuse", sample, "-o", folder).code == 0
    for path in folders[0].iterdir():
        assert path.read_bytes() == (folders[1] / path.name).read_bytes(), path.name
    refused = cli("answer", "reuse", sample, "-o", folders[0])
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.endswith("answer.json exists; give --force to replace the answer\n")
    assert cli("answer", "reuse", sample, "-o", folders[0], "--force").code == 0


def test_an_answer_is_the_same_in_other_processes_and_goes_on_from_replays_that_are_done(
    cli: Cli, sample: Path, tmp_path: Path
) -> None:
    sizes = ("--capacity", "100,200,400")
    assert cli("answer", "dram", sample, *sizes, "-o", tmp_path / "here").code == 0
    there = tmp_path / "there"
    assert cli("answer", "dram", sample, *sizes, "-o", there, "--executor", "local,processes=2").code == 0
    here = {path.name: path.read_bytes() for path in (tmp_path / "here").iterdir()}
    assert {path.name: path.read_bytes() for path in there.iterdir()} == here
    # As after an interruption: the replays are there, the answer is not.
    (there / "answer.json").unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kvbench.sweeps.cell.CellRunner.run", lambda *_: pytest.fail("replayed what is there"))
        assert cli("answer", "dram", sample, *sizes, "-o", there).code == 0
    assert {path.name: path.read_bytes() for path in there.iterdir()} == here


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--png"], "--png has no effect without --output FOLDER"),
        (["--svg"], "--svg has no effect without --output FOLDER"),
        (["--force"], "--force has no effect without --output FOLDER"),
    ],
)
def test_what_has_no_effect_is_refused(cli: Cli, sample: Path, arguments: list[str], message: str) -> None:
    run = cli("answer", "reuse", sample, *arguments)
    assert (run.code, run.out, run.err) == (2, "", f"error: {message}\n")


@pytest.mark.parametrize(
    ("question", "settings", "arguments"),
    [
        ("reuse", {"tails": "keep"}, ["--tails", "keep"]),
        (
            "dram",
            {"capacity": "100,200", "worth": "2%", "workers": 2},
            ["--capacity", "100,200", "--worth", "2%", "--workers", "2"],
        ),
        (
            "replicas",
            {"counts": [2, 1], "capacity": "1k", "compute": "poly", "slo": "ttft=1s", "executor": "local,processes=1"},
            ["--workers", "1,2", "--capacity", "1k", "--compute", "poly", "--slo", "ttft=1s"],
        ),
    ],
)
def test_the_library_gives_the_same_answer(
    cli: Cli, sample: Path, question: str, settings: dict[str, Any], arguments: list[str]
) -> None:
    found = kvbench.answer(question, sample, **settings)
    assert json.loads(json.dumps(found.to_dict())) == json.loads(
        cli("answer", question, sample, *arguments, "--json").out
    )
    shown = found._repr_html_()
    assert escape(found.advice[0]) in shown
    assert shown.count("<table>") == sum(table.num_rows > 0 for table in found.tables.values())


def test_an_unknown_question_and_an_unknown_setting_are_refused(sample: Path) -> None:
    with pytest.raises(kvbench.ConfigError, match=r"unknown question 'dramm'; did you mean 'dram'\?"):
        kvbench.answer("dramm", sample)
    with pytest.raises(kvbench.ConfigError, match="unknown key 'worht'"):
        kvbench.answer("dram", sample, worht="1%")


def test_a_trace_without_ids_is_refused_and_told_what_to_import(cli: Cli, tmp_path: Path) -> None:
    """User report A14: lengths without identity say nothing of hits, neither 0 nor 1."""
    lengths = tmp_path / "lengths.csv"
    lengths.write_text("arrival_ns,input_tokens,output_tokens\n0,100,10\n5,200,10\n")
    columns = "columns,arrival=arrival_ns:ns,input=input_tokens"
    assert cli("trace", "import", lengths, "--format", columns).code == 0
    for question in ("reuse", "dram"):
        run = cli("answer", question, "lengths.arrow")
        assert (run.code, run.out) == (2, "")
        assert "has neither block_ids nor token_ids, so nothing is known of its reuse" in run.err


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [(21_810.3, 4, "21,810"), (8.27e-5, 3, "0.0000827"), (0.0, 4, "0"), (-3.14159, 3, "-3.14"), (1e6, 4, "1,000,000")],
)
def test_numbers_of_tables_are_written_out(value: float, digits: int, text: str) -> None:
    assert plain(value, digits) == text
