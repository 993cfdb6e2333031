"""README.md says what is so: generated parts are current, examples run."""

from __future__ import annotations

import doctest
import os
import re
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import readme
import readme_routers
import readme_timed
from cogapp import Cog

import kvbench
from kvbench.config import load_config
from kvbench.fitting.compute import fit_compute
from kvbench.plugins import Distribution
from kvbench.replays.faults import read_faults
from kvbench.serving.devices import load_devices
from kvbench.testing import ComputeModelContract, ExecutorContract, HashAlgorithmContract, small_trace
from kvbench.testing.executors import small_cells
from kvbench.trace.formats.mooncake import MooncakeFormat
from kvbench.trace.importer import import_trace

README = readme.ROOT / "README.md"
CHAT = readme.ROOT / "traces" / "chat.arrow"


@pytest.fixture(scope="module")
def mooncake(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The Mooncake traces by name, imported."""
    folder = tmp_path_factory.mktemp("mooncake")
    traces = {name: folder / f"{name}.arrow" for name in readme.PUBLISHED_POOLS}
    for name, path in traces.items():
        import_trace(shared / f"traces/mooncake/{name}_trace.jsonl.gz", path, format=MooncakeFormat())
    return traces


def blocks(language: str) -> list[str]:
    """The code blocks of one language."""
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(), re.DOTALL)


def block_with(language: str, text: str) -> str:
    """The only code block of a language that has ``text`` in it."""
    (found,) = (block for block in blocks(language) if text in block)
    return found


def test_generated_parts_are_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(readme.ROOT)
    assert Cog().main(["cog", "--check", "--diff", "-P", "-I", "tests", "README.md"]) == 0, (
        "run: cog -r -P -I tests README.md"
    )


def test_python_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runnable = [code for code in blocks("python") if "kvbench.replay(table" in code]
    assert runnable
    for code in runnable:
        exec(compile(code, "README.md", "exec"), {})


def test_python_sessions_print_what_they_show() -> None:
    sessions = blocks("pycon")
    assert sessions
    for session in sessions:
        example = doctest.DocTestParser().get_doctest(session, {}, "README.md", "README.md", 0)
        assert doctest.DocTestRunner().run(example).failed == 0


def plugin(hook: str) -> kvbench.Registry:
    """The built-in parts, and those of the example that defines ``hook``."""
    example: dict[str, object] = {}
    exec(compile(block_with("python", f"def {hook}"), "README.md", "exec"), example)
    module = SimpleNamespace(**{hook: example[hook]})
    return kvbench.load_registry([(module, Distribution("example", "1"))], autoload=False)


def test_the_hash_algorithm_keeps_its_contract_and_hits_what_others_hit() -> None:
    registry = plugin("kvbench_hash_algorithms")
    contract = HashAlgorithmContract()
    contract.spec = registry.get(kvbench.HashAlgorithmSpec, "blake2")
    contract.test_another_token_changes_the_keys_from_its_block_on_and_no_others()
    contract.test_extra_keys_have_an_effect_or_are_refused()
    table = small_trace("token_ids")
    tokens = ("chained,algorithm=blake2", "chained")
    own, usual = (kvbench.replay(table, tokens=each, registry=registry).rates for each in tokens)
    assert own == usual


def test_the_admission_filter_spares_a_tier() -> None:
    registry = plugin("kvbench_admission_filters")
    tiers = ["gpu,capacity=100", "nvme,capacity=2k"]
    everything = kvbench.replay(CHAT, tiers=tiers, registry=registry).summary["tiers"][1]
    tiers[1] += ",admission=first-few,admission.blocks=20"
    some = kvbench.replay(CHAT, tiers=tiers, registry=registry).summary["tiers"][1]
    assert 0 < some["hit_blocks"] < everything["hit_blocks"]
    assert 0 < some["written_blocks"] < everything["written_blocks"]
    assert some["refused_admission_blocks"] > 0


def test_the_device_times_a_tier() -> None:
    registry = plugin("kvbench_devices")
    tiers = ["gpu,capacity=100", "far,capacity=2k,device=cxl"]
    far = kvbench.replay(CHAT, tiers=tiers, block_bytes="2MiB", registry=registry).summary["tiers"][1]
    assert far["read_busy_ns"] == pytest.approx(far["read_bytes"] / 28, rel=1e-6)


def test_the_compute_model_keeps_its_contract_and_can_be_fitted(tmp_path: Path) -> None:
    registry = plugin("kvbench_compute_models")
    contract = ComputeModelContract()
    contract.spec = registry.get(kvbench.ComputeModelSpec, "memory")
    contract.test_more_tokens_never_take_less()
    model = contract.fresh()
    assert model.step_time_ns([(1_000, 50, 50)], decodes=2, decode_context=300) == 5_000_000 + 40 * 300 + 35_000_000
    rows = tmp_path / "rows.csv"
    rows.write_text("new_tokens,decodes,decode_context,ms\n100,0,0,10\n1000,0,0,55\n0,3,10000,5.3\n0,9,50000,6.5\n")
    found = fit_compute(registry, rows, "memory")
    assert [parameter.value for parameter in found.parameters] == pytest.approx([5, 30, 50], rel=1e-6)


def test_the_executor_keeps_its_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    contract = ExecutorContract()
    contract.spec = plugin("kvbench_executors").get(kvbench.ExecutorSpec, "threads")
    contract.test_outcomes_are_those_of_this_process(small_cells(tmp_path))
    contract.test_an_executor_runs_again_after_it_was_left_early(small_cells(tmp_path))


def test_the_run_file_of_tiers_runs(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(block_with("toml", "[[tiers]]"))
    config = load_config(file, {"trace": str(CHAT)})
    settings = {name: getattr(config, name) for name in tomllib.loads(file.read_text()) if name != "trace"}
    tiers = kvbench.replay(CHAT, **settings).summary["tiers"]
    assert [(tier["tier"], tier["stores"]) for tier in tiers] == [("gpu", 4), ("cpu", 2), ("dfs", 1)]
    assert all(tier["hit_blocks"] for tier in tiers)


def test_the_fault_plan_has_effects(tmp_path: Path) -> None:
    file = tmp_path / "faults.toml"
    file.write_text(block_with("toml", "[[fault]]"))
    assert len(read_faults(file, ["gpu", "cpu", "nvme"], workers=2).faults) == 3
    tiers = ["gpu,capacity=100", "cpu,capacity=300", "nvme,capacity=2k"]
    result = kvbench.replay(CHAT, workers=2, router="round-robin", tiers=tiers, faults=str(file))
    assert [tier["failed_gets"] > 0 for tier in result.summary["tiers"]] == [False, False, True]
    assert result.summary["misses"]["fault"] > 0


def test_the_devices_file_is_one(tmp_path: Path) -> None:
    file = tmp_path / "devices.toml"
    file.write_text(block_with("toml", "[our-nvme]"))
    assert load_devices(file)["our-nvme"].read_bandwidth_bytes_per_s == 6_500_000_000


STUDIES: dict[str, Callable[[dict[str, Path]], str]] = {
    "tiers": lambda traces: readme.stack_study(traces["conversation"]),
    "pools": readme.pool_study,
    "routers": lambda traces: readme_routers.router_study(traces["conversation"]),
    "dynamo": lambda traces: readme_timed.dynamo_study(traces["conversation"]),
}


@pytest.mark.parametrize("name", STUDIES)
def test_studies_of_real_traces_give_what_the_readme_shows(mooncake: dict[str, Path], name: str) -> None:
    text = README.read_text()
    study = re.search(rf"<!-- mooncake {name}: .*? -->\n(.*?)<!-- end -->", text, re.DOTALL)
    assert study is not None
    found = STUDIES[name](mooncake)
    if os.environ.get("KVBENCH_UPDATE_README"):
        README.write_text(text[: study.start(1)] + found + "\n" + text[study.end(1) :])
    else:
        assert study[1] == found + "\n"


SESSION = re.compile(r"<!-- \w+ session.*?```console\n(.*?)```", re.DOTALL)


def session_printed(session: str, folder: Path, shared: Path) -> str:
    """What the commands of a session print in ``folder``, which has Mooncake's traces as they are published, and the
    conversation as a trace where the session does not import it. Commands of others are not run."""
    commands = [line[2:] for line in session.splitlines() if line.startswith("$ ")]
    for name in ("synthetic_trace.jsonl.gz", "conversation_trace.jsonl.gz"):
        published = folder / name
        shutil.copyfile(shared / "traces/mooncake" / name, published)
    if not any(command.startswith("kvbench trace import") for command in commands):
        import_trace(published, folder / "conversation_trace.arrow", format=MooncakeFormat())
    printed = [f"$ {each}\n{readme.run(each, folder) if each.startswith('kvbench ') else '…'}\n" for each in commands]
    return "".join(printed)


@pytest.mark.parametrize("number", range(len(SESSION.findall(README.read_text()))))
def test_sessions_with_a_real_trace_print_what_the_readme_shows(shared: Path, tmp_path: Path, number: int) -> None:
    text = README.read_text()
    session = list(SESSION.finditer(text))[number]
    printed = session_printed(session[1], tmp_path, shared)
    if os.environ.get("KVBENCH_UPDATE_README"):
        README.write_text(text[: session.start(1)] + printed + text[session.end(1) :])
    else:
        assert session[1] == printed


def test_every_environment_variable_is_documented() -> None:
    used: set[str] = set()
    for path in [*readme.ROOT.glob("kvbench/**/*.py")]:
        used |= set(re.findall(r"KVBENCH_[A-Z_]+[A-Z]", path.read_text()))
    for name in sorted(used):
        assert name in README.read_text(), name
