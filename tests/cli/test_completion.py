"""Shells complete commands, options, and what options take."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from kvbench.cli.completing import BY_METAVAR, SHELLS
from kvbench.cli.root import root
from tests.cli.conftest import BUILT_IN_ONLY, Cli

SHIM = """#!/bin/sh
if [ -n "$_KVBENCH_COMPLETE" ] || [ "$1" = completion ]; then exec {python} -m kvbench "$@"; fi
echo "ran: $*"
"""
"""Stands for kvbench: completes as it does, and says how it was called else."""

START = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}
SET_UP = {
    "bash": "source <(kvbench completion bash)",
    "zsh": "autoload -U compinit; compinit -u -D; source <(kvbench completion zsh)",
    "fish": "kvbench completion fish | source",
}


def ask(*words: str) -> list[str]:
    """What bash is answered when the last of ``words`` is to be completed."""
    env = {"_KVBENCH_COMPLETE": "bash_complete", "COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run(
        [sys.executable, "-m", "kvbench"],
        env={**os.environ, BUILT_IN_ONLY: "1", **env},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["repl"], ["plain,replay"]),
        (["replay", "--pol"], ["plain,--policy"]),
        (["replay", "--policy", "s3"], ["plain,s3-fifo"]),
        (["replay", "--policy", "s3-fifo,th"], ["plain,s3-fifo,threshold="]),
        (["replay", "--policy", "s3-fifo,threshold", "=", "2,gh"], ["plain,2,ghost="]),
        (["replay", "--policy", "=", "s3-fifo,th"], ["plain,s3-fifo,threshold="]),
        (["replay", "--order", "=", "t"], ["plain,tail-first"]),
        (["replay", "--tier", "cpu,prom"], ["plain,cpu,promotion="]),
        (["replay", "--tier", "cpu,policy", "=", "siev"], ["plain,sieve"]),
        (["replay", "--tier", "cpu,write", "=", "ba"], ["plain,back"]),
        (["replay", "--arrivals", "se"], ["plain,session"]),
        (["replay", "--worker", "load", "=", "ch"], ["plain,cheaper"]),
        (["replay", "--slo", "ttft", "=", "2s,e"], ["plain,2s,e2e="]),
        (["replay", "--preset", "vllm-"], ["plain,vllm-offload"]),
        (["presets", "hi"], ["plain,hicache"]),
        (["replay", "--model", "llama-3.1-4"], ["plain,Llama-3.1-405B"]),
        (["replay", "--model", "own/con"], ["file,own/con"]),
        (["kv-size", "--gpu", "h100-s"], ["plain,h100-sxm"]),
        (["trace", "import", "--format", "mooncake-"], ["plain,mooncake-delta"]),
        (["trace", "make", "cha"], ["plain,chat"]),
        (["events", "import", "--format", "dy"], ["plain,dynamo"]),
        (["compare", "a.parquet", "--fail-if", "token_"], ["plain,token_rate:"]),
        (["replay", "traces/ch"], ["file,traces/ch"]),
        (["replay", "-o", "req"], ["file,req"]),
        (["compare", "a.parquet", "b"], ["file,b"]),
        (["completion", "f"], ["plain,fish"]),
    ],
)
def test_each_kind_of_word_is_completed(words: list[str], answer: list[str]) -> None:
    assert ask("kvbench", *words) == answer


def test_the_figures_of_the_files_before_are_completed(cli: Cli, sample: Path, tmp_path: Path) -> None:
    run, own = str(tmp_path / "run.parquet"), ["kvbench", "plot"]
    assert cli("replay", sample, "--capacity", "9", "-o", run).code == 0
    figures = re.findall(r"^([a-z-]+) +\d+ +\S", cli("plot", run).out, re.MULTILINE)
    assert ask(*own, run, "--figure", "") == [f"plain,{name}" for name in figures]
    assert ask(*own, "--data", "a.csv", run, "--figure", "mis") == ["plain,misses"]
    for files in ([], [str(tmp_path / "none.parquet")], [str(sample)]):
        assert ask(*own, *files, "--figure", "") == []


def test_a_key_is_not_offered_twice() -> None:
    first, later = (ask("kvbench", "replay", "--worker", text) for text in ("", "load=always,"))
    assert "plain,load=" in first
    assert len(later) == len(first) - 1


def commands(group: click.Group, ctx: click.Context) -> list[tuple[str, click.Command]]:
    found = []
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        inner = click.Context(command, ctx, info_name=name)
        found += (
            [(f"{name} {below}", each) for below, each in commands(command, inner)]
            if isinstance(command, click.Group)
            else [(name, command)]
        )
    return found


def test_everything_that_is_called_a_file_is_completed_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BUILT_IN_ONLY, "1")
    for name, command in commands(root, click.Context(root, **root.context_settings)):
        for param in command.params:
            if isinstance(param.type, click.Path):
                metavar = param.make_metavar(click.Context(command)).strip("[].… ")
                assert metavar in BY_METAVAR or isinstance(param, click.Argument), (name, param.name, metavar)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("typed", "ran"),
    [
        ("kvbench repl\t--pol\ts3-f\t--seed 1", "ran: replay --policy s3-fifo --seed 1"),
        ("kvbench replay --policy s3-fifo,thr\t2,gh\t0.5", "ran: replay --policy s3-fifo,threshold=2,ghost=0.5"),
        ("kvbench replay samp\t--tier gpu,capac\t7", "ran: replay sample.arrow --tier gpu,capacity=7"),
    ],
)
def test_a_shell_completes_as_one_types(tmp_path: Path, shell: str, typed: str, ran: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here")
    (tmp_path / "sample.arrow").touch()
    (tmp_path / "kvbench").write_text(SHIM.format(python=sys.executable))
    (tmp_path / "kvbench").chmod(0o755)
    env = {
        **{name: value for name, value in os.environ.items() if name not in ("PROMPT_COMMAND", "ENV")},
        BUILT_IN_ONLY: "1",
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "TERM": "dumb",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.execvpe(START[shell][0], START[shell], env)
    try:
        for line, until in ((f"{SET_UP[shell]}; echo rea''dy", "ready"), (typed, ran)):
            os.write(terminal, f"{line}\n".encode())
            wait_for(terminal, until)
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(terminal)


def wait_for(terminal: int, text: str, seconds: float = 40) -> None:
    """Read what a terminal shows until ``text`` is in it."""
    shown, ends = "", time.monotonic() + seconds
    while text not in shown:
        ready, _, _ = select.select([terminal], [], [], max(ends - time.monotonic(), 0))
        assert ready, shown
        shown += os.read(terminal, 65_536).decode(errors="replace").replace("\r", "")


def test_the_script_of_each_shell_is_printed_and_another_shell_is_an_error(cli: Cli) -> None:
    for shell in SHELLS:
        run = cli("completion", shell)
        assert (run.code, run.err) == (0, "")
        assert f"{shell}_complete" in run.out
    assert cli("completion", "tcsh").code == 2
