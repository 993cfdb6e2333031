"""What ``kvbench kv-size`` prints."""

from __future__ import annotations

from typing import Any

from rich.markup import escape

from kvbench.cli.tables import Printer, add_remarks, simple_table
from kvbench.results.headline import number
from kvbench.units import format_bytes

SCOPES = ("rank", "host", "cluster")


def print_models(document: dict[str, Any]) -> None:
    """Print the table of known models."""
    out = Printer()
    table = simple_table("model", "attention layers", "kept for a token", "dtype", "bytes/token", "bytes/request")
    add_remarks(table)
    for model in document["models"]:
        table.add_row(
            escape(model["name"]),
            str(model["full_layers"] + model["window_layers"]),
            _kept(model),
            model["dtype"],
            f"{model['bytes_per_token']:,}",
            f"{model['fixed_bytes']:,}",
            _layers_remark(model),
        )
    out.print(table)
    out.print()
    out.print("bytes/token: over all layers, at one rank; bytes/request: however short the request is")


def print_size(document: dict[str, Any]) -> None:
    """Print the sizes of one model and what its capacities hold."""
    out = Printer()
    model = document["model"]
    scales = f" with {model['scale_bytes']} bytes of scales a vector" if model["scale_bytes"] else ""
    layers = model["full_layers"] + model["window_layers"]
    out.print(
        f"[bold]{escape(model['name'])}[/bold] · {layers} attention layers · {_kept(model)} · "
        f"{model['dtype']}{scales} · TP {document['tp']}"
    )
    out.print(f"from {escape(model['source'])}", style="dim")
    out.print()
    out.print(_sizes(document))
    for held in document["capacities"]:
        out.print()
        _print_capacity(out, document, held)
    remarks = _remarks(document)
    if remarks:
        out.print()
    for remark in remarks:
        out.print(escape(f"note: {remark}"))


def _kept(model: dict[str, Any]) -> str:
    if model["attention"] == "MLA":
        return f"MLA latent {model['latent_dim']} + {model['rope_dim']}"
    if not model["kv_heads"]:
        return "no KV"
    width = model["head_dim"] if model["value_dim"] is None else f"{model['head_dim']}/{model['value_dim']}"
    return f"{model['kv_heads']} KV heads × {width}"


def _layers_remark(model: dict[str, Any]) -> str:
    parts = []
    if model["window_layers"]:
        parts.append(f"{model['window_layers']} layers keep {model['window_tokens']:,} tokens")
    if model["state_layers"]:
        parts.append(f"{model['state_layers']} layers keep a constant state")
    return "; ".join(parts)


def _sizes(document: dict[str, Any]) -> Any:
    once = document["model"]["attention"] == "MLA"
    table = simple_table("bytes", "of each rank", "of a worker", *(["stored once"] if once else []))
    add_remarks(table)
    block, request, window = document["block"], document["request"], document["model"]["window_tokens"]
    rows: list[tuple[str, dict[str, Any] | None, str]] = [
        ("a token", document["bytes_per_token"], f"in the first {window:,} tokens" if window else ""),
        ("a token after that", document["bytes_per_token_beyond_window"], "window layers let go of one for each"),
        ("a request", document["fixed_bytes"], "constant state, however short it is"),
        (f"a block of {block['tokens']:,}", block, _in_words(block["total"])),
    ]
    if request is not None:
        rows.append((f"a request of {request['tokens']:,}", request, _in_words(request["total"])))
    for name, sizes, remark in rows:
        if sizes is not None:
            columns = ["rank", "total", *(["stored_once"] if once else [])]
            table.add_row(name, *(number(sizes.get(column)) for column in columns), remark)
    return table


def _in_words(size: int) -> str:
    return f"{format_bytes(size)} a worker"


def _print_capacity(out: Printer, document: dict[str, Any], held: dict[str, Any]) -> None:
    ranks = f"{document['tp']} rank{'s' if document['tp'] > 1 else ''}"
    workers = f"{held['workers']} worker{'s' if held['workers'] > 1 else ''} of {ranks}"
    out.print(
        f"[bold]{escape(held['given'])} per {held['scope']}[/bold] · {workers} a host · "
        f"{held['hosts']} host{'s' if held['hosts'] > 1 else ''}"
    )
    request = document["request"]
    asked = [f"requests of {request['tokens']:,}"] if request else []
    table = simple_table("scope", "bytes", "blocks", "tokens", *asked)
    add_remarks(table)
    remarks = {"rank": "its part of the blocks of its worker", "host": "host total", "cluster": "all hosts"}
    for scope in SCOPES:
        room = held[scope]
        cells = [number(room[column]) for column in ("bytes", "blocks", "tokens", *(["requests"] if asked else []))]
        given = " (given)" if scope == held["scope"] else ""
        table.add_row(scope, *cells, f"{format_bytes(room['bytes'])}; {remarks[scope]}{given}")
    out.print(table)
    longest = held["longest_request_tokens"]
    length = "any" if longest is None else f"{longest:,} tokens"
    out.print(f"the longest request that fits alone into these bytes of a {held['scope']}: {length}")


def _remarks(document: dict[str, Any]) -> list[str]:
    model, tp = document["model"], document["tp"]
    heads = model["kv_heads"]
    remarks = list(model["notes"])
    if heads and tp > heads:
        remarks.append(f"{tp} ranks share {heads} KV heads, so heads replicate: a token takes more than at TP {heads}")
    elif heads and heads % tp:
        remarks.append(f"{heads} KV heads do not divide over {tp} ranks: each is counted with {-(-heads // tp)}")
    if model["attention"] == "MLA" and tp > 1:
        stored = "it is stored once (--save-only-first-rank)" if document["save_only_first_rank"] else "each stores it"
        remarks.append(f"every rank holds the same latent; {stored}")
    if model["window_layers"]:
        remarks.append("a block counts all layers, as a store keeps them; windows bound a request that runs")
    if model["state_layers"]:
        remarks.append("blocks hold no constant state: a store that snapshots it takes more")
    if model["dtype"] in ("fp8", "int8", "fp4", "int4") and not model["scale_bytes"]:
        remarks.append(f"scales of {model['dtype']} are not counted; --scale-bytes adds them")
    return remarks
