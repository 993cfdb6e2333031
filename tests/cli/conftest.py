from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from kvbench.cli import main

BUILT_IN_ONLY = "KVBENCH_DISABLE_PLUGIN_AUTOLOAD"


@dataclass(frozen=True)
class Run:
    """What one run of the command line did."""

    code: int
    out: str
    err: str


Cli = Callable[..., Run]


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """Runs ``kvbench …`` in ``tmp_path`` with built-in parts only; ``env`` adds variables.

    In this process, which spares half a second of imports; in one of its own where it is given ``stdin`` or
    ``env``, for it is a process that these belong to.
    """

    def run(*arguments: str | Path, stdin: bytes | None = None, env: dict[str, str] | None = None) -> Run:
        texts = [str(argument) for argument in arguments]
        if stdin is None and env is None:
            return _run_here(texts, tmp_path)
        done = subprocess.run(
            [sys.executable, "-m", "kvbench", *texts],
            cwd=tmp_path,
            env={**os.environ, BUILT_IN_ONLY: "1", **(env or {})},
            input=stdin or b"",
            capture_output=True,
            check=False,
        )
        return Run(done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


def _run_here(arguments: list[str], folder: Path) -> Run:
    """``kvbench`` as a process would run it, but for signals."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv(BUILT_IN_ONLY, "1")
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
        with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
            main(arguments)
    signal.signal(signal.SIGTERM, handler)
    code = ended.value.code
    assert isinstance(code, int)
    return Run(code, *(_text_of(stream) for stream in (out, err)))


def _text_of(stream: io.TextIOWrapper) -> str:
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode()


@pytest.fixture
def sample() -> Path:
    """The shipped sample trace."""
    return Path(__file__).parents[2] / "traces" / "chat.arrow"
