"""What ``kvbench keys check`` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.markup import escape

from kvbench.cli.tables import Printer, add_remarks, simple_table
from kvbench.tokens.madekeys import hash_digits

if TYPE_CHECKING:
    from kvbench.tokens.keycheck import KeyCheck
    from kvbench.tokens.madekeys import MadeKeys

MAX_DIGITS = 32
"""Of a hash in a table; JSON has all of it."""


def print_check(found: KeyCheck, shown: int) -> None:
    """Print the verdict, the settings that differ, and the first ``shown`` keys of both sides."""
    out = Printer()
    count = max(len(found.a.hashes), len(found.b.hashes))
    if found.equal:
        out.print(f"[bold]equal[/bold]: all {count:,} keys are the same")
    else:
        out.print(f"[bold]different[/bold]: {escape(str(found.first))}: {escape(found.why)}")
    out.print()
    if found.differences:
        out.print(_differences(found))
        out.print()
    for name, made in (("a", found.a), ("b", found.b)):
        out.print(escape(f"{name}: {made.setup.algorithm} ({made.system}), {made.layout}; root {_root(made)}"))
    out.print()
    if count:
        out.print(_keys(found, min(shown, count)))
        if count > shown:
            out.print(f"… {count - shown:,} more, of which {max(0, found.equal_keys - shown):,} are equal: see --json")
        _print_texts(out, found)


def _differences(found: KeyCheck) -> Any:
    table = simple_table("setting", "a", "b", "changes keys")
    add_remarks(table)
    for each in found.differences:
        verdict = "yes" if each.matters else "no"
        table.add_row(each.field, escape(_value(each.a)), escape(_value(each.b)), verdict, escape(each.why))
    return table


def _keys(found: KeyCheck, shown: int) -> Any:
    table = simple_table("tokens of a", "hash in a", "tokens of b", "hash in b", "same key")
    for at in range(shown):
        sides = [*_block(found.a, at), *_block(found.b, at)]
        table.add_row(*sides, "yes" if at < found.equal_keys else "no")
    return table


def _block(made: MadeKeys, at: int) -> tuple[str, str]:
    if at >= len(made.hashes):
        return "–", "–"
    start, end = made.spans[at]
    return f"{start:,}–{end - 1:,}", "random" if made.unstable else _cut(hash_digits(made.hashes[at]))


def _print_texts(out: Printer, found: KeyCheck) -> None:
    for name, made in (("a", found.a), ("b", found.b)):
        if made.texts and made.texts[0] is not None:
            out.print(escape(f"first key of {name}: {made.texts[0]}"))


def _root(made: MadeKeys) -> str:
    return "another one in each process" if made.unstable else _cut(made.root)


def _value(value: Any) -> str:
    if value is None or value in ("", ()):
        return "–"
    if isinstance(value, tuple):
        return ", ".join(f"{name}={each}" for name, each in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _cut(digits: str) -> str:
    return digits if len(digits) <= MAX_DIGITS else digits[:MAX_DIGITS] + "…"
