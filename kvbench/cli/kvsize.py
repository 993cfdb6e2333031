"""``kvbench kv-size``: how many bytes a model's KV takes, and how many tokens a capacity holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from kvbench.serving.capacity import Holding, Room
    from kvbench.serving.kvsize import KvLayout

DEFAULT_BLOCK_TOKENS = 16


@click.command(
    name="kv-size",
    epilog="""\b
Examples:
  kvbench kv-size
  kvbench kv-size Llama-3.1-70B --tp 8 --block-tokens 64 --capacity 64GiB --scope rank
  kvbench kv-size DeepSeek-V3 --tp 8 --dtype fp8 --save-only-first-rank
  kvbench kv-size Qwen3-32B --tp 2 --gpu h100-sxm --tokens 32768
  kvbench kv-size path/to/config.json --tokens 131072 --capacity 1TiB,2TiB""",
)
@click.argument("model", required=False)
@click.option("--tp", type=int, default=1, show_default=True, metavar="N", help="Tensor-parallel ranks of a worker.")
@click.option("--dtype", metavar="TYPE", help="Of the KV: bf16, fp16, fp8, int8, fp4, …  [default: the model's]")
@click.option(
    "--scale-bytes",
    type=int,
    metavar="N",
    help="Bytes of scales beside each stored vector (a head's key, its value, or an MLA latent), with fp8 and "
    "narrower.  [default: 0]",
)
@click.option("--tokens", metavar="N", help="Also size one request of this length, and say how many fit.")
@click.option(
    "--block-tokens", type=int, default=DEFAULT_BLOCK_TOKENS, show_default=True, metavar="N", help="Tokens of a block."
)
@click.option("--capacity", metavar="SIZE,…", help="Say what these sizes hold: 64GiB, 1TiB.")
@click.option(
    "--scope", type=click.Choice(["rank", "host", "cluster"]), help="Whose bytes --capacity are.  [default: host]"
)
@click.option("--workers", type=int, metavar="N", help="Workers of a host, of --tp ranks each.  [default: 1]")
@click.option("--hosts", type=int, metavar="N", help="Hosts of the cluster.  [default: 1]")
@click.option("--gpu", metavar="NAME|SIZE", help="Say what the weights leave of a GPU's memory: h100-sxm, 80GiB.")
@click.option(
    "--utilization", type=float, metavar="SHARE", help="Of that memory, with the weights, at most.  [default: 0.9]"
)
@click.option("--save-only-first-rank", is_flag=True, help="Ranks that hold the same KV (MLA) store it once.")
@click.option("--models", type=click.Path(path_type=Path), metavar="FILE", help="More model presets.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
def kv_size(model: str | None, models: Path | None, as_json: bool, **settings: Any) -> None:
    """Say how many bytes the KV cache of MODEL takes and how many tokens a capacity holds.

    MODEL is a preset, a model of --models, or the path of a Hugging Face config.json. Without it,
    all known models are listed.
    """
    if model is None:
        document: dict[str, Any] = {"models": _listing(models, settings)}
    else:
        document = _report(model, models, settings)
    if as_json:
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
        return
    from kvbench.cli.kvsizetables import print_models, print_size

    if model is None:
        print_models(document)
    else:
        print_size(document)


def _listing(models: Path | None, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """One row for each known model, at one rank."""
    from kvbench.errors import ConfigError
    from kvbench.serving.kvsize import KvLayout
    from kvbench.serving.models import load_models

    defaults = {"tp": 1, "block_tokens": DEFAULT_BLOCK_TOKENS, "save_only_first_rank": False}
    for name, value in settings.items():
        if value != defaults.get(name):
            raise ConfigError(f"--{name.replace('_', '-')} has no effect without MODEL; name one")
    shapes = {shape.name: shape for shape in load_models(models).values()}
    return [_model(KvLayout(shape)) for shape in shapes.values()]


def _model(layout: KvLayout) -> dict[str, Any]:
    """What is kept for a token and a request by one rank that holds everything."""
    shape = layout.shape
    return {
        "name": shape.name,
        "attention": "MLA" if shape.is_mla else "heads",
        "full_layers": shape.full_layers,
        "window_layers": shape.window_layers,
        "window_tokens": shape.window,
        "state_layers": shape.state.layers if shape.state else 0,
        "kv_heads": shape.kv_heads or None,
        "head_dim": shape.head_dim or None,
        "value_dim": shape.value_dim,
        "latent_dim": shape.latent_dim or None,
        "rope_dim": shape.rope_dim or None,
        "dtype": shape.dtype,
        "scale_bytes": shape.scale_bytes,
        "bytes_per_token": layout.bytes_per_token,
        "bytes_per_token_beyond_window": layout.growth_bytes,
        "fixed_bytes": layout.fixed_bytes,
        "source": shape.source,
        "notes": list(shape.notes),
    }


def _report(model: str, models: Path | None, settings: dict[str, Any]) -> dict[str, Any]:
    from kvbench.errors import ConfigError
    from kvbench.serving.kvsize import KvLayout, check_tokens
    from kvbench.serving.models import kv_layout
    from kvbench.units import MAX_TOKENS, parse_count

    layout = kv_layout(
        model,
        settings["tp"],
        settings["dtype"],
        models,
        settings["save_only_first_rank"],
        scale_bytes=settings["scale_bytes"] or 0,
    )
    block_tokens = check_tokens(settings["block_tokens"], "--block-tokens")
    tokens = None if settings["tokens"] is None else check_tokens(parse_count(settings["tokens"]), "--tokens")
    for value, option in ((block_tokens, "--block-tokens"), (tokens or 1, "--tokens")):
        if value > MAX_TOKENS:
            raise ConfigError(f"{option} = {value} must be at most {MAX_TOKENS:,}")
    return {
        "model": _model(KvLayout(layout.shape)),
        "tp": layout.ranks,
        "save_only_first_rank": layout.once,
        "bytes_per_token": _both(layout, layout.rank_bytes_per_token),
        "bytes_per_token_beyond_window": _both(layout, layout.rank_growth_bytes)
        if layout.shape.window_layers
        else None,
        "fixed_bytes": {"rank": layout.rank_fixed_bytes, "total": layout.fixed_bytes},
        "block": {"tokens": block_tokens, **_both(layout, layout.rank_block_bytes(block_tokens))},
        "request": None
        if tokens is None
        else {
            "tokens": tokens,
            "rank": layout.rank_bytes_of(tokens),
            "total": layout.bytes_of(tokens),
            "stored_once": KvLayout(layout.shape, layout.ranks, once=True).bytes_of(tokens)
            if layout.shape.is_mla
            else None,
        },
        "capacities": _capacities(layout, block_tokens, tokens, settings),
    }


def _both(layout: KvLayout, rank: int) -> dict[str, int | None]:
    """Bytes of one rank and over the ranks of a worker; for MLA also if it is stored once."""
    return {
        "rank": rank,
        "total": layout.stored_ranks * rank,
        "stored_once": rank if layout.shape.is_mla else None,
    }


def _capacities(
    layout: KvLayout, block_tokens: int, tokens: int | None, settings: dict[str, Any]
) -> list[dict[str, Any]]:
    from kvbench.errors import ConfigError
    from kvbench.serving.capacity import capacity_of
    from kvbench.units import parse_bytes

    if settings["utilization"] is not None and settings["gpu"] is None:
        raise ConfigError("--utilization has no effect without --gpu")
    if settings["scope"] is not None and settings["capacity"] is None:
        raise ConfigError("--scope has no effect without --capacity")
    if settings["capacity"] is None and settings["gpu"] is None:
        for name in ("workers", "hosts"):
            if settings[name] is not None:
                raise ConfigError(f"--{name} has no effect without --capacity or --gpu")
        return []
    scope = settings["scope"] or "host"
    workers, hosts = (1 if settings[name] is None else settings[name] for name in ("workers", "hosts"))
    given = [] if settings["capacity"] is None else settings["capacity"].split(",")
    sizes = [(text.strip(), parse_bytes(text), scope) for text in given]
    if settings["gpu"] is not None:
        sizes.append(_left(layout, settings))
    rows = []
    for text, size, whose in sizes:
        held = capacity_of(
            layout,
            size,
            whose,
            block_tokens=block_tokens,
            request_tokens=tokens,
            workers=workers,
            hosts=hosts,
        )
        rows.append({"given": text, "workers": workers, "hosts": hosts, **_holding(held)})
    return rows


def _left(layout: KvLayout, settings: dict[str, Any]) -> tuple[str, int, str]:
    """What the weights leave of each rank's memory: in words, in bytes, and whose it is."""
    from kvbench.serving.capacity import DEFAULT_UTILIZATION, left_by_weights
    from kvbench.serving.gpus import load_gpus
    from kvbench.serving.models import decoder_of
    from kvbench.units import parse_bytes

    gpus, name = load_gpus(), settings["gpu"]
    memory = round(gpus[name].hbm_gib * 2**30) if name in gpus else parse_bytes(name)
    share = DEFAULT_UTILIZATION if settings["utilization"] is None else settings["utilization"]
    size = left_by_weights(decoder_of(layout.shape), memory, layout.ranks, share)
    return f"{share:g} of {name} less the weights", size, "rank"


def _holding(held: Holding) -> dict[str, Any]:
    def room(of: Room) -> dict[str, int | None]:
        return {"bytes": of.size, "blocks": of.blocks, "tokens": of.tokens, "requests": of.requests}

    return {
        "scope": held.scope,
        "rank": room(held.rank),
        "host": room(held.host),
        "cluster": room(held.cluster),
        "longest_request_tokens": held.longest_request_tokens,
    }
