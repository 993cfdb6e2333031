"""JSON on standard output."""

from __future__ import annotations

from typing import Any

import click


def print_json(document: Any) -> None:
    """Print one document, for people too: indented by two."""
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
