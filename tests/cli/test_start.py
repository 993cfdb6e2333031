"""Starting is cheap: help imports nothing that it does not need."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Cli

CHAT = Path(__file__).parents[2] / "traces" / "chat.arrow"
HEAVY = ("numpy", "pyarrow", "rich", "msgspec", "blake3", "kvbench.cache", "kvbench.eviction", "kvbench.replays")


@pytest.mark.parametrize("arguments", [["--help"], ["plugins"], ["replay", "--help"], ["trace", "import", "--help"]])
def test_help_imports_neither_arrow_nor_the_core(arguments: list[str]) -> None:
    code = (
        "import sys\n"
        "from kvbench.cli import main\n"
        "try:\n"
        f"    main({arguments!r})\n"
        "except SystemExit as done:\n"
        "    assert done.code == 0, done.code\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
    )
    env = {**os.environ, "KVBENCH_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stderr.splitlines()[-1] == "[]"


def test_import_of_the_package_imports_nothing_heavy() -> None:
    code = f"import sys, kvbench; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("settings", [{"capacity": 100}, {"capacity": 100, "workers": 2, "compute": "poly"}])
def test_a_replay_does_not_wait_for_pandas_to_be_imported(settings: dict[str, Any]) -> None:
    pytest.importorskip("pandas")
    replay = f"kvbench.replay({str(CHAT)!r}, belady='off', **{settings!r})"
    code = f"import kvbench, sys; {replay}; print('pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_version_is_the_installed_one(cli: Cli) -> None:
    from importlib.metadata import version

    assert cli("--version").out.strip() == f"kvbench {version('kvbench')}"


def test_every_command_has_help_that_ends_in_an_example(cli: Cli) -> None:
    for command in (
        ["replay"],
        ["plugins"],
        ["trace", "import"],
        ["trace", "export"],
        ["trace", "inspect"],
        ["trace", "make"],
        ["keys", "check"],
    ):
        run = cli(*command, "--help")
        assert run.code == 0
        assert "Example" in run.out, command
