"""What holds for every command: examples that run, and options that mean the same under one name."""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from kvbench import errors
from kvbench.cli.root import root
from tests.cli.conftest import BUILT_IN_ONLY, Cli

SAME_HELP = (
    *("--json", "--on-error", "--tail-rule", "--id-kind", "--id-scope", "--shared-blocks", "--tails", "--models"),
    *("--preset", "--placement", "--walk", "--retries", "--faults", "--devices", "--save-only-first-rank"),
    *("--arrivals", "--slo", "--stop", "--window", "--worker", "--link", "--index", "--event-channel", "--load"),
    *("--png", "--svg", "--routers", "--prefill-tokens-per-s"),
)
"""Options that say the same wherever they are; where they say more, it is of their default."""

OTHER_METAVAR = {
    ("--block-bytes", "trace export"): "a whole number, for a format that has bytes alone",
    ("--capacity", "replay"): "one, or a matrix",
    ("--format", "events import"): "of events, which are no parts",
    ("--model", "fit compute"): "the compute model",
    ("--model", "trace select"): "what rows name",
    ("--rows", "trace select"): "a range of rows",
    ("--sample", "replay"): "of time: between samples of the timeline",
    ("--tier", "fit device"): "a name alone",
    ("--tokens", "keys check"): "the tokens themselves",
    ("--tokens", "kv-size"): "how many",
    ("--until", "events fold"): "requests: events may have no time",
    ("--workers", "answer replicas"): "several numbers",
}
"""Where an option is of another form than elsewhere, and why."""


def commands(group: click.Group, ctx: click.Context, before: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, with its name."""
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, click.Context(command, ctx, info_name=name), f"{before}{name} ")
        else:
            yield f"{before}{name}", command


@pytest.fixture(autouse=True)
def only_what_ships(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BUILT_IN_ONLY, "1")


@pytest.fixture
def every(only_what_ships: None) -> dict[str, click.Command]:
    return dict(commands(root, click.Context(root, info_name="kvbench", **root.context_settings)))


def examples(command: click.Command) -> list[list[str]]:
    """The arguments of each ``kvbench …`` in a command's epilog, which may stand in a pipeline."""
    text = (command.epilog or "").replace("\\\n", " ")
    text = re.sub(r'"\$\(seq[^"]*\)"', "'1 2 3'", text)
    found = []
    for line in re.findall(r"^  (\S.*)$|Example: (.*)$", text, re.MULTILINE):
        lexer = shlex.shlex("".join(line), posix=True, punctuation_chars="|;<>()")
        lexer.whitespace_split = True
        lexer.commenters = ""
        words: list[str] = []
        for word in [*lexer, ";"]:
            if set(word) <= set("|;<>()"):
                if words[:1] == ["kvbench"]:
                    found.append(words[1:])
                words = []
            else:
                words.append(word)
    return found


def test_every_command_has_examples_that_it_accepts(every: dict[str, click.Command]) -> None:
    for name, command in every.items():
        found = examples(command)
        own = [words for words in found if " ".join(words).startswith(name)]
        assert own, f"{name} has no example"
        for words in found:
            called: click.Command = root
            ctx = click.Context(root, info_name="kvbench", **root.context_settings)
            while isinstance(called, click.Group):
                called, ctx = every_step(called, ctx, words.pop(0))
            called.make_context(str(called.name), words, parent=ctx.parent)  # raises for what it does not take


def every_step(group: click.Group, ctx: click.Context, word: str) -> tuple[click.Command, click.Context]:
    command = group.get_command(ctx, word)
    assert command is not None, word
    return command, click.Context(command, ctx, info_name=word)


def test_examples_over_the_shipped_traces_run(cli: Cli, every: dict[str, click.Command], tmp_path: Path) -> None:
    (tmp_path / "traces").symlink_to(Path(__file__).parents[2] / "traces")
    ran = 0
    for command in [root, *every.values()]:
        text = "kvbench replay traces/chat.arrow --capacity 10%" if command is root else None
        for words in [shlex.split(text)[1:]] if text else examples(command):
            if any(word.startswith("traces/") for word in words):
                run = cli(*words)
                assert (run.code, run.err) == (0, ""), words
                ran += 1
    assert ran >= 3


def options(every: dict[str, click.Command]) -> dict[str, dict[str, click.Option]]:
    """Option → command → the option there."""
    found: dict[str, dict[str, click.Option]] = defaultdict(dict)
    for name, command in every.items():
        for param in command.params:
            if isinstance(param, click.Option):
                for option in param.opts:
                    found[option][name] = param
    return found


def test_an_option_means_the_same_in_every_command(every: dict[str, click.Command]) -> None:
    for name, uses in options(every).items():
        metavars = defaultdict(list)
        for command, option in uses.items():
            metavar = "flag" if option.is_flag else option.make_metavar(click.Context(every[command]))
            if (name, command) not in OTHER_METAVAR:
                metavars[metavar.removesuffix(",…")].append(command)
        if name in ("-o", "--output"):
            assert set(metavars) <= {"FILE", "FOLDER"}, metavars
        elif name == "--sample-by":
            assert {frozenset(each.strip("[]").split("|")) for each in metavars} == {frozenset({"tree", "session"})}
        else:
            assert len(metavars) <= 1, (name, dict(metavars))
        if name in SAME_HELP:
            helps = {re.sub(r"  \[default: .*", "", option.help or "") for command, option in uses.items()}
            helps -= {"With --like: print the comparison as one JSON document."}
            assert len(helps) == 1, (name, helps)


def test_what_writes_takes_o_and_force_and_every_command_takes_h(every: dict[str, click.Command]) -> None:
    for name, command in every.items():
        ctx = click.Context(command, parent=click.Context(root, **root.context_settings), info_name=name)
        assert set(ctx.help_option_names) == {"-h", "--help"}, name
        params = {option for param in command.params for option in param.opts}
        assert ("--output" in params) == ("-o" in params), name
        assert ("--force" in params) == bool(params & {"--output", "--plot"}), name
        assert "--seed" in params or "--seeds" not in params or name.startswith("answer"), name


def test_the_readme_names_every_exit_code() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    told = readme[readme.index("Exit codes: ") :].split("\n\n")[0]
    known = {value for name, value in vars(errors).items() if name.startswith("EXIT_")} | {1}
    assert {int(code) for code in re.findall(r"(?:^|[ ,(])(\d+) ", told)} == known
