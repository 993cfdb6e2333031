"""``kvbench keys``: how prompts are named, and why two systems do not find each other's blocks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvbench.cli.root import registry_of

if TYPE_CHECKING:
    from kvbench.tokens.keycheck import KeyCheck
    from kvbench.tokens.madekeys import MadeKeys

EXIT_DIFFERENT = 1
SHOWN_KEYS = 4


@click.group()
def keys() -> None:
    """Compare the keys that two systems give to one prompt."""


@keys.command(
    epilog="""\b
Exit code: 0 the keys are equal, 1 they differ, 2 bad input.

\b
Examples:
  kvbench keys check --tokens "$(seq -s ' ' 0 63)" --a vllm,seed=0 --b vllm,seed=42
  kvbench keys check --tokens-file prompt.json --a lmcache-mp,algorithm=lmcache-mp-sha256-cbor,seed=0,chunk=16 \\
      --b vllm,algorithm=vllm-sha256-cbor,seed=0
  kvbench keys check --trace rag.arrow --row 7 --a worker0.toml --b worker0.toml,world=8
  kvbench keys presets"""
)
@click.option("--tokens", metavar="IDS", help="The prompt's token ids, set apart by spaces or commas.")
@click.option(
    "--tokens-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A file with the token ids: a JSON list, or numbers set apart by spaces, commas or new lines.",
)
@click.option("--trace", metavar="FILE", help="A trace with token_ids; its row --row is the prompt.")
@click.option("--row", type=click.IntRange(min=1), metavar="N", help="Row of --trace, from 1.  [default: 1]")
@click.option("--a", "a_text", metavar="SETUP", required=True, help="One setup; see above.")
@click.option("--b", "b_text", metavar="SETUP", required=True, help="The other one.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
@click.pass_context
def check(ctx: click.Context, /, a_text: str, b_text: str, as_json: bool, **prompt: Any) -> None:
    """Say whether two setups give the same keys to a prompt, and which setting is to blame if not.

    A SETUP is [PRESET|FILE.toml,]KEY=VALUE,…: algorithm and chunk; parameters of the algorithm (seed
    is the text of PYTHONHASHSEED, none_hash the root itself, vllm a version); fold = none, first or
    last 8 bytes of a digest; tails = drop or keep; model, dtype, world, rank, save_only_first_rank,
    layout, adapter, adapter_path, salt, images (of vLLM, IDENTIFIER:FIRST:COUNT for each, set apart by
    spaces), and tag.NAME. kvbench keys presets lists the presets,
    kvbench plugins the algorithms.

    Settings in which the two differ are exchanged one by one; the first that changes a key is the
    one to blame, and those that change none are said to have no effect.
    """
    from kvbench.tokens.keycheck import check_keys
    from kvbench.tokens.keysetup import parse_setup

    registry = registry_of(ctx)
    a, b = (parse_setup(text, registry, option) for text, option in ((a_text, "--a"), (b_text, "--b")))
    found = check_keys(a, b, _prompt(**prompt), registry)
    if as_json:
        from kvbench.cli.jsonout import print_json

        print_json(_document(found))
    else:
        from kvbench.cli.keystables import print_check

        print_check(found, SHOWN_KEYS)
    ctx.exit(0 if found.equal else EXIT_DIFFERENT)


@keys.command(epilog="Example: kvbench keys presets")
def presets() -> None:
    """List the presets of keys check and what they set."""
    from kvbench.cli.tables import Printer, add_remarks, simple_table
    from kvbench.tokens.keysetup import key_preset_help, load_key_preset

    table = simple_table("preset", "setup")
    add_remarks(table)
    for name, text in key_preset_help().items():
        setup = ",".join(f"{key}={value}" for key, value in load_key_preset(name).items())
        table.add_row(name, setup, text)
    Printer().print(table)


def _prompt(tokens: str | None, tokens_file: Path | None, trace: str | None, row: int | None) -> Any:
    """The token ids of the one source that was given."""
    from kvbench.tokens.prompts import parse_tokens, read_row, read_tokens

    given = [source for source in (tokens, tokens_file, trace) if source is not None]
    if len(given) != 1:
        raise click.UsageError("give the prompt with one of --tokens, --tokens-file and --trace")
    if row is not None and trace is None:
        raise click.UsageError("--row has no effect without --trace")
    if tokens is not None:
        return parse_tokens(tokens, "--tokens")
    return read_tokens(tokens_file) if tokens_file is not None else read_row(str(trace), row or 1)


def _document(found: KeyCheck) -> dict[str, Any]:
    return {
        "equal": found.equal,
        "equal_keys": found.equal_keys,
        "first_field": found.first,
        "why": found.why,
        "differences": list(found.differences),
        "a": _side(found.a),
        "b": _side(found.b),
    }


def _side(made: MadeKeys) -> dict[str, Any]:
    from kvbench.tokens.madekeys import hash_digits

    return {
        "system": made.system,
        "setup": made.setup.fields(),
        "layout": made.layout,
        "root": None if made.unstable else made.root,
        "unstable": made.unstable,
        "keys": [
            {"start": start, "end": end, "hash": None if made.unstable else hash_digits(digest), "text": text}
            for (start, end), digest, text in zip(made.spans, made.hashes, made.texts, strict=True)
        ],
    }
