"""The KV shape of a model from the ``config.json`` that Hugging Face keeps for it.

Nothing is guessed: a key that is missing, or one that changes the KV in a way not known here, is a
ConfigError that names the file and the key.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kvbench.errors import ConfigError, reason, shorten
from kvbench.serving.hflayers import count_layers, read_state
from kvbench.serving.hfweights import read_weights
from kvbench.serving.kvsize import KvShape, parse_dtype

if TYPE_CHECKING:
    from pathlib import Path

NESTS = ("text_config", "llm_config", "language_config")
"""Where models of several modalities keep the part that generates text."""

LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num")
WIDTH = ("hidden_size", "n_embd", "d_model")
HEAD_DIM = ("head_dim", "attention_head_dim", "kv_channels")
DTYPE = ("torch_dtype", "dtype")

UNKNOWN = {
    "block_configs": "its layers differ",
    "num_key_value_heads_per_layer": "its layers differ in KV heads",
    "num_global_key_value_heads": "its layers differ in KV heads",
    "global_head_dim": "its layers differ in head dim",
    "num_kv_shared_layers": "some layers share the KV of others",
    "attention_chunk_size": "some layers attend in chunks",
    "is_encoder_decoder": "it has cross-attention",
    "cross_attention_layers": "it has cross-attention",
}
"""Keys that change the KV and are not modelled, if they say anything but null, 0 or false."""


class Config:
    """One ``config.json``: typed access to its keys, with errors that name file and key."""

    def __init__(self, where: str, values: dict[str, Any]) -> None:
        self.where = where
        self.values = values

    def count(self, *keys: str, default: int | None = None) -> int:
        """The first of ``keys`` that is there: a whole number of at least 1. ConfigError if none is
        and there is no ``default``."""
        for key in keys:
            value = self.values.get(key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise self.error(key, f"{shorten(value)} is not a whole number of at least 1; correct it")
            return value
        if default is None:
            raise self.error(
                keys[0], "is missing; add it, or describe the model in a file for --models (keys as in a preset)"
            )
        return default

    def text(self, key: str) -> str:
        """The text of ``key``; empty if it is not there."""
        value = self.values.get(key) or ""
        if not isinstance(value, str):
            raise self.error(key, f"{shorten(value)} is not a text; correct it")
        return value

    def error(self, key: str, problem: str) -> ConfigError:
        """The error for one key."""
        return ConfigError(f"{self.where}, {key}: {problem}")


def read_config(path: Path, dtype: str | None = None) -> KvShape:
    """The shape of the model whose ``config.json`` is ``path``, or lies in the folder ``path``.

    ``dtype``  of the KV, instead of the file's.

    Raises ConfigError, in one sentence with the file and the key, for a file that cannot be read, is
    incomplete, or describes what is not modelled.
    """
    file = path / "config.json" if path.is_dir() else path
    config = _load(file)
    for key, why in UNKNOWN.items():
        if config.values.get(key):
            raise config.error(key, f"this model is not supported: {why}; describe it in a file for --models")
    total = config.count(*LAYERS)
    layers = count_layers(config, total)
    notes = []
    if config.values.get("index_head_dim"):
        notes.append("the key cache of the sparse-attention indexer is not counted")
    if config.values.get("num_nextn_predict_layers"):
        notes.append("the layers of multi-token prediction are not counted")
    shape = KvShape(
        name=(file.resolve().parent.name or str(file)) if file.name == "config.json" else file.stem,
        full_layers=layers.full,
        window_layers=layers.windowed,
        window=layers.window,
        dtype=_dtype(config) if dtype is None else parse_dtype(dtype, "--dtype"),
        state=read_state(config, layers.state),
        source=str(file),
        notes=tuple(notes),
        weights=read_weights(config, layers, total, _weight_dtype(config)),
    )
    return _with_heads(shape, config) if shape.layers else shape


def _load(file: Path) -> Config:
    where = str(file)
    try:
        values = json.loads(file.read_bytes())
    except OSError as error:
        raise ConfigError(f"{where}: cannot be read: {reason(error)}; give the config.json of a model") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: not valid JSON: {error}; give the config.json of a model") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{where}: not a JSON object; give the config.json of a model")
    for nest in NESTS:
        inner = values.get(nest)
        if isinstance(inner, dict) and not any(key in values for key in LAYERS):
            shared = {key: values[key] for key in (*DTYPE, "quantization_config") if values.get(key) is not None}
            return Config(f"{where}, {nest}", shared | {k: v for k, v in inner.items() if v is not None})
    return Config(where, values)


def _with_heads(shape: KvShape, config: Config) -> KvShape:
    """``shape`` with what a layer keeps for a token."""
    if config.values.get("kv_lora_rank"):
        return replace(shape, latent_dim=config.count("kv_lora_rank"), rope_dim=config.count("qk_rope_head_dim"))
    heads = config.count(*HEADS)
    head_dim = config.count(*HEAD_DIM, default=0)
    if not head_dim:
        width = config.count(*WIDTH)
        if width % heads:
            raise config.error(
                HEAD_DIM[0], f"is missing, and {WIDTH[0]} = {width} is no multiple of {HEADS[0]} = {heads}; add it"
            )
        head_dim = width // heads
    value_dim = config.count("v_head_dim", default=head_dim)
    return replace(
        shape,
        kv_heads=_kv_heads(config, heads),
        head_dim=head_dim,
        value_dim=None if value_dim == head_dim else value_dim,
    )


def _kv_heads(config: Config, heads: int) -> int:
    if config.values.get("multi_query") and not config.values.get("new_decoder_architecture"):
        return 1
    inner = config.values.get("attn_config")
    if isinstance(inner, dict) and inner.get("kv_n_heads"):
        return Config(f"{config.where}, attn_config", inner).count("kv_n_heads")
    return config.count(*KV_HEADS, default=heads)


def _weight_dtype(config: Config) -> str:
    """The dtype of weights that are not quantized; bf16 where the file does not say."""
    said = next((config.text(key) for key in DTYPE if config.text(key)), "bf16")
    return parse_dtype(said, f"{config.where}, {DTYPE[0]}")


def _dtype(config: Config) -> str:
    """The dtype of the KV: that of a KV quantization scheme if there is one, else of the weights
    before their quantization."""
    quantization = config.values.get("quantization_config")
    if isinstance(quantization, dict):
        scheme = quantization.get("kv_cache_scheme")
        if isinstance(scheme, dict):
            kind = f"{'int' if scheme.get('type') == 'int' else 'fp'}{scheme.get('num_bits')}"
            return parse_dtype(kind, f"{config.where}, quantization_config.kv_cache_scheme")
        algorithm = quantization.get("kv_cache_quant_algo")
        if algorithm:
            return parse_dtype(str(algorithm), f"{config.where}, quantization_config.kv_cache_quant_algo")
    for key in DTYPE:
        if config.text(key):
            return parse_dtype(config.text(key), f"{config.where}, {key}")
    raise config.error(DTYPE[0], "is missing; give --dtype, or add it")
