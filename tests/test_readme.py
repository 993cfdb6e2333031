"""README.md says what is so: generated parts are current, examples run."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
import readme
from cogapp import Cog

README = readme.ROOT / "README.md"


def test_generated_parts_are_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(readme.ROOT)
    assert Cog().main(["cog", "--check", "--diff", "-P", "-I", "tests", "README.md"]) == 0, (
        "run: cog -r -P -I tests README.md"
    )


def test_python_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    runnable = [code for code in examples if "kvbench.replay(table" in code]
    assert runnable
    for code in runnable:
        exec(compile(code, "README.md", "exec"), {})


def test_sessions_with_a_real_trace_print_what_the_readme_shows(shared: Path, tmp_path: Path) -> None:
    text = README.read_text()
    session = re.search(r"<!-- mooncake session.*?```console\n(.*?)```", text, re.DOTALL)
    assert session is not None
    shutil.copyfile(shared / "traces/mooncake/conversation_trace.jsonl.gz", tmp_path / "conversation_trace.jsonl.gz")
    commands = [line[2:] for line in session[1].splitlines() if line.startswith("$ ")]
    printed = "\n".join(f"$ {command}\n{readme.run(command, tmp_path)}" for command in commands) + "\n"
    if os.environ.get("KVBENCH_UPDATE_README"):
        README.write_text(text.replace(session[1], printed))
    else:
        assert session[1] == printed


def test_every_environment_variable_is_documented() -> None:
    used: set[str] = set()
    for path in [*readme.ROOT.glob("kvbench/**/*.py")]:
        used |= set(re.findall(r"KVBENCH_[A-Z_]+[A-Z]", path.read_text()))
    for name in sorted(used):
        assert name in README.read_text(), name
