from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Run:
    """What one run of the command line did."""

    code: int
    out: str
    err: str


Cli = Callable[..., Run]


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """Runs ``kvbench …`` in ``tmp_path`` with built-in parts only; ``env`` adds variables."""

    def run(*arguments: str | Path, stdin: bytes = b"", env: dict[str, str] | None = None) -> Run:
        done = subprocess.run(
            [sys.executable, "-m", "kvbench", *map(str, arguments)],
            cwd=tmp_path,
            env={**os.environ, "KVBENCH_DISABLE_PLUGIN_AUTOLOAD": "1", **(env or {})},
            input=stdin,
            capture_output=True,
            check=False,
        )
        return Run(done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


@pytest.fixture
def sample() -> Path:
    """The shipped sample trace."""
    return Path(__file__).parents[2] / "traces" / "chat.arrow"
