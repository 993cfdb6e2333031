"""The widths of a model's matrices from its ``config.json``, where the file says them in a way known here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbench.serving.kvsize import parse_dtype
from kvbench.serving.weights import WeightShape

if TYPE_CHECKING:
    from kvbench.serving.hfconfig import Config
    from kvbench.serving.hflayers import Layers

FFN = ("intermediate_size", "ffn_dim", "ffn_hidden_size", "n_inner")
EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts")
CHOSEN = ("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk", "moe_top_k")
UNEVEN = ("mlp_only_layers", "interleave_moe_layer_step", "attn_module_list_cfg", "moe_layers_enum")
"""Keys of models whose layers have experts in an order that is not modelled."""
EVERY_LAYER = ("decoder_sparse_step", "moe_layer_freq")
"""Keys that are 1 where every layer has experts."""

WITHOUT_GATE = (
    *("bloom", "falcon", "gpt2", "gpt_bigcode", "gpt_neox", "gptj"),
    *("mpt", "opt", "phi", "starcoder2"),
)
"""Models whose feed-forward part has two matrices."""


def read_weights(config: Config, layers: Layers, total: int, dtype: str) -> WeightShape | None:
    """The widths that ``config`` says; None where it does not say them all, or layers differ in them.

    ``total``, ``layers``  layers that the file counts, and their kinds.
    ``dtype``              of weights that are not quantized.
    """
    values = config.values
    sparse = [values.get(key, 1) for key in EVERY_LAYER]
    if layers.full + layers.windowed + layers.state != total or any(values.get(key) for key in UNEVEN):
        return None
    if any(each not in (1, None) for each in sparse):
        return None
    hidden = _first(values, ("hidden_size", "n_embd", "d_model"))
    heads = _first(values, ("num_attention_heads", "n_head", "n_heads"))
    vocab = _first(values, ("vocab_size",))
    widths = _widths(values)
    if not (hidden and heads and vocab and widths):
        return None
    kind = str(values.get("model_type") or "")
    own, experts = _dtypes(values, dtype)
    return WeightShape(
        hidden=hidden,
        heads=heads,
        vocab=vocab,
        gated=kind not in WITHOUT_GATE,
        tied=bool(values.get("tie_word_embeddings", kind.startswith("gemma"))),
        q_latent=_first(values, ("q_lora_rank",)),
        nope_dim=_first(values, ("qk_nope_head_dim",)),
        mla_value_dim=_first(values, ("v_head_dim",)) if values.get("kv_lora_rank") else 0,
        dtype=own,
        expert_dtype=experts,
        **widths,
    )


def _widths(values: dict[str, Any]) -> dict[str, int]:
    """Of the feed-forward parts; empty where they are not said."""
    ffn, experts, chosen = _first(values, FFN), _first(values, EXPERTS), _first(values, CHOSEN)
    shared = _first(values, ("shared_expert_intermediate_size", "shared_intermediate_size"))
    if experts == 0:
        width = shared or ffn
        return {"ffn": width} if width else {}
    expert_ffn = _first(values, ("moe_intermediate_size",)) or ffn
    if not (expert_ffn and chosen):
        return {}
    return {
        "ffn": ffn,
        "experts": experts,
        "experts_per_token": chosen,
        "expert_ffn": expert_ffn,
        "shared_ffn": shared or _first(values, ("n_shared_experts",)) * expert_ffn,
        "dense_layers": _first(values, ("first_k_dense_replace",)),
    }


def _dtypes(values: dict[str, Any], dtype: str) -> tuple[str, str | None]:
    """Of the weights, and of those of experts if they have another."""
    how = values.get("quantization_config")
    if not isinstance(how, dict):
        return dtype, None
    method = str(how.get("quant_method") or how.get("quant_algo") or "").lower()
    if "mxfp4" in method:
        return dtype, "fp4"
    if "fp8" in method:
        return "fp8", None
    if how.get("bits") in (4, 8):
        return parse_dtype(f"int{how['bits']}", "quantization_config.bits"), None
    return dtype, None


def _first(values: dict[str, Any], keys: tuple[str, ...]) -> int:
    """The first of ``keys`` that is a number; 0 if none is."""
    for key in keys:
        value = values.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return 0
