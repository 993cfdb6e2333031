"""What the questions that replays settle have in common: sweeps that go on, run anywhere, and become charts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kvbench.answers.answer import Asked, write_answer
from kvbench.answers.recipes import RECIPES
from kvbench.config import load_config
from kvbench.plugins import load_registry
from kvbench.sweeps.cell import CellRunner
from kvbench.sweeps.executor import CellOutcome, CellTask
from tests.cli.answers import answered, refused, write_prompts
from tests.cli.conftest import Cli

MODEL = {"model": "llama-3.1-8b"}
ASKED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nvme": (
        MODEL | {"prefill_tokens_per_s": 2e4, "tiers": ["gpu,capacity=256", "nvme,capacity=1k,device=nvme-gen4"]},
        {},
    ),
    "sharing": (MODEL | {"workers": 2, "capacity": 300}, {"candidates": ["round-robin"]}),
    "eviction": ({}, {"policies": ["lru", "arc"], "capacities": ["5%"], "admissions": []}),
    "router": ({"workers": 2, "capacity": 300}, {"candidates": ["llmd", "round-robin"], "delays": [], "views": []}),
    "replicas": ({"compute": "poly", "capacity": 3_000, "slo": {"ttft": "1s"}}, {"counts": [1, 2]}),
}


@pytest.mark.parametrize("question", ASKED)
def test_each_chart_has_rows_and_compiles_and_each_manifest_the_digest(sample: Path, question: str) -> None:
    pytest.importorskip("altair")
    settings, options = ASKED[question]
    asked = Asked(config=load_config(None, {"trace": str(sample), **settings}), registry=load_registry(autoload=False))
    answer = RECIPES[question].load()(asked, **options)
    assert answer.question == question
    assert answer.manifest["trace"]["digest"].startswith("blake3:")
    assert str(sample.parent) not in str(answer.to_dict())
    assert len(answer.figures) == 2
    for figure in answer.figures:
        assert figure.rows
        assert all(figure.table().column(name).null_count == 0 for name in figure.table().column_names), figure.name
        assert figure.spec()["layer"]


@pytest.mark.parametrize("question", ASKED)
def test_a_stream_is_refused_for_it_is_read_many_times(cli: Cli, question: str) -> None:
    settings = {
        "nvme": ("--block-bytes", "1MiB", "--tier", "gpu,capacity=9", "--tier", "cpu,capacity=9,device=cpu-pcie5"),
        "sharing": ("--workers", "2", "--capacity", "9"),
        "router": ("--workers", "2", "--capacity", "9"),
        "replicas": ("--compute", "poly", "--capacity", "9", "--slo", "ttft=1s"),
    }.get(question, ())
    message = "replays read the trace many times, which standard input cannot be; save it to a file"
    assert message in refused(cli, question, "-", *settings)


@pytest.mark.parametrize("question", ASKED)
def test_an_answer_that_was_cut_short_goes_on_from_its_cells(
    sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, question: str
) -> None:
    settings, options = ASKED[question]
    config = load_config(None, {"trace": str(sample), **settings})
    asked = Asked(config=config, registry=load_registry(autoload=False), folder=tmp_path / "found")
    write_answer(RECIPES[question].load()(asked, **options), tmp_path / "found", force=False)
    before = {path: path.read_bytes() for path in (tmp_path / "found").iterdir()}
    (tmp_path / "found" / "answer.json").unlink()
    runs: list[str] = []

    run = CellRunner.run

    def counted(runner: CellRunner, task: CellTask) -> CellOutcome:
        runs.append(task.settings.get("faults", "kept"))
        return run(runner, task)

    monkeypatch.setattr(CellRunner, "run", counted)
    write_answer(RECIPES[question].load()(asked, **options), tmp_path / "found", force=False)
    assert "kept" not in runs
    assert {path: path.read_bytes() for path in (tmp_path / "found").iterdir()} == before


SHARING = ("sharing", "--workers", "2", "--capacity", "300", "--router", "round-robin")


def test_processes_of_an_executor_give_the_same_bytes(cli: Cli, sample: Path, tmp_path: Path) -> None:
    for folder, more in (("here", ()), ("there", ("--executor", "local,processes=2"))):
        assert cli("answer", SHARING[0], sample, *SHARING[1:], "-o", folder, *more).code == 0
    for path in (tmp_path / "here").iterdir():
        assert path.read_bytes() == (tmp_path / "there" / path.name).read_bytes(), path.name


def test_a_router_that_cannot_serve_the_trace_is_left_out_and_told(cli: Cli, tmp_path: Path) -> None:
    trace = write_prompts(cli, tmp_path, [[at % 5] for at in range(40)])
    trials = ("--delay", "", "--loss", "", "--views", "")
    routers = ("--router", "session-sticky", "--router", "round-robin")
    found = answered(cli, "router", trace, "--workers", "2", "--capacity", "9", *routers, *trials)
    assert [row["router"] for row in found["tables"]["routers"]] == ["round-robin"]
    assert found["advice"][-1].startswith(
        "Left out: router = session-sticky: router policy session-sticky needs session_id"
    )
    alone = refused(cli, "router", trace, "--workers", "2", "--capacity", "9", *routers[:2], *trials)
    assert "router policy session-sticky needs session_id" in alone
