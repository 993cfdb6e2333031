"""What a shell may complete, and the answers to the three shells that can ask.

Click's own completion does most of it; here is what it leaves out. Options of plain text say by their name or their
metavar what they take, and are completed by that. ``NAME,KEY=VALUE,…`` is completed piece by piece: no shell adds a
space behind ``=`` or ``,``, bash gets its own half of a word that it cuts at ``=`` and ``:``, and fish the whole of a
value that has commas.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ShellComplete, ZshComplete

from kvbench.cli import COMPLETION_VARIABLE
from kvbench.cli.parts import pieces
from kvbench.cli.root import registry_of
from kvbench.specs import AdmissionSpec, DeviceSpec, EvictionPolicySpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Completer = Callable[[click.Context, str], list[CompletionItem[Any]]]

CUTS = ("=", ":")
"""Where bash cuts words."""

ZSH_LOOP = """    for type key descr in ${response}; do
        [[ "$key" == *[=,:] ]] && nospace=(-S '')
"""

PARTS_OF_TIERS = {"policy": EvictionPolicySpec, "device": DeviceSpec, "admission": AdmissionSpec}
"""Keys of a tier whose values are parts."""


def _file(ctx: click.Context, incomplete: str) -> list[CompletionItem[Any]]:
    return [CompletionItem(incomplete, type="file")]


def _folder(ctx: click.Context, incomplete: str) -> list[CompletionItem[Any]]:
    return [CompletionItem(incomplete, type="dir")]


def _names(names: Iterable[str], incomplete: str) -> list[CompletionItem[Any]]:
    return [CompletionItem(name) for name in names if name.lower().startswith(incomplete.lower())]


def _preset(ctx: click.Context, incomplete: str) -> list[CompletionItem[Any]]:
    from kvbench.presets import preset_names

    return _names(preset_names(), incomplete)


def _model(ctx: click.Context, incomplete: str) -> list[CompletionItem[Any]]:
    from kvbench.serving.models import load_models, model_names

    return _names(model_names(load_models()), incomplete) or _file(ctx, incomplete)


def _gpu(ctx: click.Context, incomplete: str) -> list[CompletionItem[Any]]:
    from kvbench.serving.gpus import load_gpus

    return _names(load_gpus(), incomplete)


def _event_format(ctx: click.Context, incomplete: str) -> list[CompletionItem[Any]]:
    from kvbench.events.importer import READERS

    return _names(READERS, incomplete)


def _limit(ctx: click.Context, incomplete: str) -> list[CompletionItem[Any]]:
    from kvbench.results.headline import SHOWN
    from kvbench.results.thresholds import short_names

    return _names((f"{name}:" for name in short_names(SHOWN)), incomplete)


def _figure(ctx: click.Context, incomplete: str) -> list[CompletionItem[Any]]:
    """Of the files that are typed before it."""
    from kvbench.errors import KvbenchError
    from kvbench.report.assemble import assemble
    from kvbench.report.sources import read_material

    files = [*(ctx.params.get("files") or ()), *ctx.args]
    try:
        return _names([figure.name for figure in assemble(read_material(files)).figures], incomplete)
    except KvbenchError:
        return []


def _table(setting: str) -> Completer:
    """Of a setting that is a table of a run file."""

    def complete(ctx: click.Context, incomplete: str) -> list[CompletionItem[Any]]:
        from kvbench.config import TABLES
        from kvbench.serveconfig import LINK
        from kvbench.tables import TableKind, choices_of
        from kvbench.tierconfig import TierConfig

        kind = {**TABLES, "tiers": TableKind(TierConfig, first="name"), "links": LINK}[setting]
        keys = choices_of(kind.struct)
        if setting == "tiers":
            keys |= {name: registry_of(ctx).names(spec) for name, spec in PARTS_OF_TIERS.items()}
        firsts = [] if kind.first is None else keys.pop(kind.first)
        if kind.first == "name" and "," not in incomplete:
            return []
        return [*([] if "," in incomplete else _names(firsts, incomplete)), *pieces(incomplete, keys)]

    return complete


BY_NAME: Mapping[str, Completer] = {
    "preset": _preset,
    "name": _preset,
    "gpu": _gpu,
    "format_": _event_format,
    "fail_if": _limit,
    "figure": _figure,
    **{
        name: _table(name)
        for name in (
            *("index", "event_channel", "load"),
            *("worker", "arrivals", "slo", "stop", "window"),
            *("tiers", "links"),
        )
    },
}
"""Parameter of plain text → what completes it."""

BY_METAVAR: Mapping[str, Completer] = {
    **dict.fromkeys(("FILE", "TRACE", "SOURCE", "RUN"), _file),
    "FOLDER": _folder,
    "MODEL": _model,
}
"""The same by what help calls the value."""


class _Completed(click.types.StringParamType):
    """Plain text that a shell can complete."""

    def __init__(self, completer: Completer) -> None:
        self._completer = completer

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[Any]]:
        return self._completer(ctx, incomplete)


class _Answers(ShellComplete):
    """Completes options of plain text, too."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[Any]]:
        command, ctx = self.cli, click.Context(self.cli, info_name=self.prog_name)
        for word in args:
            if isinstance(command, click.Group) and (found := command.get_command(ctx, word)) is not None:
                command, ctx = found, click.Context(found, ctx, info_name=word)
        for param in command.params:
            completer = _completer_of(param, ctx)
            if completer is not None and type(param.type) is click.types.StringParamType:
                param.type = _Completed(completer)
        return super().get_completions(args, incomplete)


def _completer_of(param: click.Parameter, ctx: click.Context) -> Completer | None:
    metavar = re.sub(r"[^A-Z]", "", param.make_metavar(ctx))
    return BY_NAME.get(param.name or "") or BY_METAVAR.get(metavar)


class Bash(_Answers, BashComplete):
    """Bash cuts words at ``=`` and ``:``, and replaces the last part alone."""

    source_template = BashComplete.source_template.replace(
        "    return 0\n", '    [[ "${COMPREPLY[0]}" == *[=,:] ]] && compopt -o nospace 2>/dev/null\n    return 0\n', 1
    )

    def get_completion_args(self) -> tuple[list[str], str]:
        words = [""]
        for word in os.environ["COMP_WORDS"].split("\n")[1 : int(os.environ["COMP_CWORD"]) + 1]:
            if word in CUTS or words[-1].endswith(CUTS):
                words[-1] += word
            else:
                words.append(word)
        return words[1:-1], words[-1]

    def format_completion(self, item: CompletionItem[Any]) -> str:
        _, incomplete = self.get_completion_args()
        value = incomplete.partition("=")[2] if incomplete.startswith("--") else incomplete
        kept = max(value.rfind(cut) for cut in CUTS) + 1
        return f"{item.type},{item.value[kept:]}"


class Zsh(_Answers, ZshComplete):
    """Zsh adds a space behind what it completes unless it is told not to."""

    source_template = (
        ZshComplete.source_template.replace("-a response\n", "-a response nospace\n", 1)
        .replace("_with_descriptions -U", '_with_descriptions -U "${nospace[@]}"')
        .replace("compadd -U", 'compadd -U "${nospace[@]}"')
        .replace("    for type key descr in ${response}; do\n", ZSH_LOOP, 1)
    )


class Fish(_Answers, FishComplete):
    """Values may have commas: only the first one of an answer is behind its type."""

    source_template = FishComplete.source_template.replace('split "," $completion', 'split --max 1 "," $completion')


SHELLS: Mapping[str, type[ShellComplete]] = {shell.name: shell for shell in (Bash, Zsh, Fish)}


def script(cli: click.Command, shell: str) -> str:
    """What a shell reads to be able to ask."""
    return SHELLS[shell](cli, {}, "kvbench", COMPLETION_VARIABLE).source()


def answer(cli: click.Command, asked: str) -> str | None:
    """The answer to ``SHELL_complete``; None for what is no such question."""
    shell, _, what = asked.partition("_")
    if shell not in SHELLS or what not in ("complete", "source"):
        return None
    return script(cli, shell) if what == "source" else SHELLS[shell](cli, {}, "kvbench", COMPLETION_VARIABLE).complete()
