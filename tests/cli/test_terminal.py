"""What is shown on a terminal, and that nothing but text comes out elsewhere."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from kvbench.cli.progress import CELLS, row_progress
from tests.cli.conftest import BUILT_IN_ONLY

CHAT = Path(__file__).parents[2] / "traces" / "chat.arrow"
STYLE = re.compile(r"\x1b\[[0-9;]*m")
COLOUR = re.compile(r"\x1b\[(?:[0-9;]*;)?(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;[0-9;]*)?m")
VARIABLES = ("NO_COLOR", "FORCE_COLOR", "TERM", "COLUMNS", "LINES", "COLORTERM", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
FAILING = ["compare", "good.parquet", "worse.parquet", "--fail-if", "token_rate:+0%"]


def shown(folder: Path, arguments: list[str], *, columns: int | None = 120, **env: str) -> str:
    """What ``kvbench …`` prints to a terminal of so many columns; None: to a pipe."""
    variables = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    variables |= {BUILT_IN_ONLY: "1", **env}
    command = [sys.executable, "-m", "kvbench", *arguments]
    if columns is None:
        return subprocess.run(
            command, cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        ).stdout
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    process = subprocess.Popen(command, cwd=folder, env=variables, stdout=theirs, stderr=theirs, stdin=theirs)
    os.close(theirs)
    text = b""
    while True:
        try:
            more = os.read(ours, 65_536)
        except OSError:  # the other end is closed
            break
        if not more:
            break
        text += more
    process.wait()
    os.close(ours)
    return text.decode().replace("\r\n", "\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs that differ, which compare prints in bold and red."""
    import kvbench

    folder = tmp_path_factory.mktemp("terminal")
    for name, capacity in (("good", 500), ("worse", 1000)):
        kvbench.replay(CHAT, capacity=capacity, output=str(folder / f"{name}.parquet"))
    return folder


def test_a_terminal_has_colours_and_a_pipe_has_none(folder: Path) -> None:
    assert COLOUR.search(shown(folder, FAILING, TERM="xterm-256color"))
    piped = shown(folder, FAILING, columns=None, TERM="xterm-256color")
    assert "failed: worse.parquet breaks" in piped
    assert "\x1b" not in piped


def test_no_color_and_a_dumb_terminal_have_no_colours(folder: Path) -> None:
    assert not COLOUR.search(shown(folder, FAILING, TERM="xterm-256color", NO_COLOR="1"))
    dumb = shown(folder, FAILING, TERM="dumb")
    assert "\x1b" not in dumb
    assert "failed: worse.parquet breaks" in dumb


def test_force_color_colours_a_pipe(folder: Path) -> None:
    assert COLOUR.search(shown(folder, FAILING, columns=None, TERM="xterm-256color", FORCE_COLOR="1"))


@pytest.mark.parametrize("help_of", [["--help"], ["replay", "--help"]])
def test_help_and_errors_are_plain_text_everywhere(folder: Path, help_of: list[str]) -> None:
    assert "\x1b" not in shown(folder, help_of, TERM="xterm-256color")
    assert "\x1b" not in shown(folder, ["replay", "gone.arrow"], TERM="xterm-256color")


def test_on_a_narrow_terminal_no_name_and_no_number_is_cut(folder: Path) -> None:
    wide, narrow = (
        STYLE.sub("", shown(folder, ["replay", str(CHAT), "--capacity", "500"], columns=columns, TERM="xterm"))
        for columns in (200, 60)
    )
    rates = re.findall(r"^(\w+) +([0-9.]+ %) +([0-9.]+ %) +([0-9.]+ %)", wide, re.MULTILINE)
    assert len(rates) == 7
    for row in rates:
        assert re.search(r"^" + r" +".join(map(re.escape, row)), narrow, re.MULTILINE), row
    assert "…" not in narrow


def test_a_bar_of_several_sweeps_has_the_cells_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int | None]] = []

    def update(_: object, task: object, *, completed: int, total: int | None, rate: float) -> None:
        told.append((completed, total))

    monkeypatch.setattr("sys.stderr", io.StringIO())
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("kvbench.cli.progress.QUIET_SECONDS", 0.0)
    monkeypatch.setattr("rich.progress.Progress.update", update)
    with row_progress("eviction", CELLS) as progress:
        assert progress is not None
        progress(24, 24)
        progress(1, 3)
    assert told == [(24, 24), (1, 3)]


def test_on_a_narrow_terminal_the_words_of_headers_stand_below_each_other(folder: Path) -> None:
    arguments = ["answer", "dram", str(CHAT), "--block-bytes", "2MiB", "--workers", "2"]
    narrow, piped = (STYLE.sub("", shown(folder, arguments, columns=columns)) for columns in (140, None))
    table, told = (text.split("\n\n")[2].splitlines() for text in (narrow, piped))
    assert max(map(len, table)) <= 140 < max(map(len, told))
    assert [line.split() for line in table if line[0].isdigit()] == [line.split() for line in told[2:]]
    headers = [line for line in table[1:] if not line[0].isdigit()]
    assert sorted(" ".join(headers).split()) == sorted(told[1].split())
