"""What is counted of a model: parameters against published ones, operations and bytes by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvbench.errors import ConfigError
from kvbench.serving.compute import ComputeContext
from kvbench.serving.gpus import find_gpu
from kvbench.serving.models import find_decoder, load_models
from kvbench.serving.roofline import Roofline
from kvbench.serving.rooflines import make_roofline

BILLIONS = {
    "Llama-2-7B": (6.74, 6.74),
    "Llama-3.1-8B": (8.03, 8.03),
    "Llama-3.1-70B": (70.6, 70.6),
    "Llama-3.1-405B": (405.9, 405.9),
    "Qwen2.5-7B": (7.62, 7.62),
    "Qwen2.5-32B": (32.8, 32.8),
    "Qwen2.5-72B": (72.7, 72.7),
    "Qwen3-8B": (8.2, 8.2),
    "Qwen3-32B": (32.8, 32.8),
    "Qwen3-30B-A3B": (30.5, 3.3),
    "Qwen3-235B-A22B": (235, 22),
    "Mistral-7B-v0.3": (7.25, 7.25),
    "Mixtral-8x7B": (46.7, 12.9),
    "Gemma-2-9B": (9.24, 9.24),
    "Gemma-2-27B": (27.2, 27.2),
    "Gemma-3-27B": (27.0, 27.0),
    "gpt-oss-20b": (20.9, 3.6),
    "gpt-oss-120b": (116.8, 5.1),
    "Phi-3-mini-128k": (3.82, 3.82),
    "Phi-4": (14.7, 14.7),
    "granite-3.3-8b": (8.17, 8.17),
    "granite-4.0-h-micro": (3.19, 3.19),
    "granite-4.0-h-small": (32.2, 9.0),
    "DeepSeek-V2-Lite": (15.7, 2.4),
    "DeepSeek-V3": (671, 37),
    "DeepSeek-R1": (671, 37),
    "Kimi-K2": (1_026, 32),
}
"""Published sizes, and of them what a token uses (model cards, technical reports; Gemma 3 without its vision part)."""


def roofline(model: str, tp: int = 1, *, context: ComputeContext | None = None, **params: Any) -> Roofline:
    defaults = {"gpu": "h100-sxm", "bandwidth_efficiency": 1.0, "step_us": 0.0, "layer_us": 0.0}
    return make_roofline(context or ComputeContext(), model=model, tp=tp, **defaults | params)


@pytest.mark.parametrize("model", BILLIONS)
def test_models_have_as_many_parameters_as_published(model: str) -> None:
    decoder = find_decoder(model)
    every, used = BILLIONS[model]
    assert decoder.params / 1e9 == pytest.approx(every, rel=0.005)
    embedding = 0 if decoder.weights.tied else decoder.head_params
    least = (decoder.token_params + decoder.head_params) / 1e9
    assert 0.97 * least <= used <= 1.06 * (least + embedding / 1e9), "some count the embedding, some do not"


def test_every_preset_has_its_weights() -> None:
    assert {shape.name for shape in load_models().values()} == set(BILLIONS)


def test_prefill_costs_what_the_break_even_check_says() -> None:
    """5.6: 36 µs a token of an 8B model on an H100 at MFU 0.45, 39 of a 70B model on eight, with all parameters
    counted; without embedding and head it is a little less."""
    rate = find_gpu("h100-sxm").bf16_tflops * 1e12 * 0.45
    for model, tp, published in (("Llama-3.1-8B", 1, 36), ("Llama-3.1-70B", 8, 39)):
        assert 2e6 * find_decoder(model).params / (tp * rate) == pytest.approx(published, rel=0.02)
        assert 0.85 * published < roofline(model, tp).prefill_time_ns(1_024) / 1_024 / 1e3 < 1.02 * published


def test_prefill_by_hand() -> None:
    """Llama 3.1 8B: 6.98 · 10⁹ parameters a token, 0.53 · 10⁹ of the head, 32 layers of 4 · 4,096 a pair."""
    new, context = 4_096, 10_000
    parameters = 32 * (4096 * 4096 * 2 + 4096 * 1024 * 2 + 3 * 4096 * 14_336)
    flops = 2 * parameters * new + 2 * 128_256 * 4_096 + 32 * 4 * 4_096 * new * (context + new / 2)
    assert roofline("Llama-3.1-8B").prefill_time_ns(new, context) == pytest.approx(flops / 989e3 / 0.45, abs=2)


def test_decode_by_hand() -> None:
    """Weights once, but for the embedding; the KV of every context; the KV that is written."""
    weights = 2 * (find_decoder("Llama-3.1-8B").params - 128_256 * 4_096)
    moved = weights + 131_072 * (64 * 2_000 + 64)
    made = roofline("Llama-3.1-8B", bandwidth_efficiency=0.5, step_us=30, layer_us=2)
    assert made.step_time_ns([], 64, 64 * 2_000) == pytest.approx(moved / 3_350 / 0.5 + 30e3 + 64e3, abs=2)


def test_experts_are_read_once_some_token_chooses_them() -> None:
    """One token reads 8 of 128 experts of a layer, a large batch all of them."""
    decoder = find_decoder("Qwen3-30B-A3B")
    made = roofline("Qwen3-30B-A3B")
    experts = 48 * 2 * decoder.expert_params / 3_350
    one, many = (made.step_time_ns([], requests) for requests in (1, 500))
    assert many - one == pytest.approx((128 - 8) * experts + 499 * 98_304 / 3_350, rel=1e-4)


def test_latent_vectors_are_read_by_every_rank() -> None:
    """DeepSeek V3 on 16 H200: 61 layers of 576 numbers of 2 bytes a token of context, not split."""
    made = roofline("DeepSeek-V3", 16, gpu="h200-sxm")
    long, short = (made.step_time_ns([], 1, context) for context in (100_000, 1))
    assert long - short == pytest.approx(99_999 * 61 * 576 * 2 / 4_800, abs=2)


def test_layers_with_a_window_look_no_farther() -> None:
    """Gemma 3: 10 of 62 layers see all of a long context; KV of 16 heads of 128."""
    made = roofline("Gemma-3-27B")
    more = made.step_time_ns([], 1, 60_000) - made.step_time_ns([], 1, 50_000)
    assert more == pytest.approx(10_000 * 10 * 2 * 16 * 128 * 2 / 3_350, abs=2)
    pairs = made.prefill_time_ns(1_000, 60_000) - made.prefill_time_ns(1_000, 50_000)
    assert pairs == pytest.approx(10_000 * 1_000 * 10 * 4 * 32 * 128 / 989e3 / 0.45, rel=1e-6)


def test_fp8_weights_take_the_fp8_peak_where_there_is_one() -> None:
    for gpu, gain in (("h100-sxm", 2), ("a100-sxm", 1)):
        half, full = (
            roofline("Qwen3-8B", gpu=gpu, weight_dtype=dtype).prefill_time_ns(8_192) for dtype in ("fp8", "bf16")
        )
        assert full / half == pytest.approx(gain, rel=1e-6)


def test_the_run_says_what_the_model_does_not() -> None:
    context = ComputeContext(model="Llama-3.1-70B", tp=8, kv_dtype="fp8")
    made = make_roofline(context, gpu="h100-sxm", bandwidth_efficiency=1, step_us=0, layer_us=0)
    more = made.step_time_ns([], 1, 100_001) - made.step_time_ns([], 1, 1)
    assert more == pytest.approx(100_000 * 327_680 / 8 / 2 / 3_350, abs=2)


CONFIG: dict[str, Any] = {
    "model_type": "qwen3_moe",
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "vocab_size": 151936,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
DEEPSEEK: dict[str, Any] = {
    "model_type": "deepseek_v3",
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 129280,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "fp8"},
}


@pytest.mark.parametrize(("values", "preset"), [(CONFIG, "Qwen3-30B-A3B"), (DEEPSEEK, "DeepSeek-V3")])
def test_a_config_json_says_the_same_as_the_preset(values: dict[str, Any], preset: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(values))
    read, known = find_decoder(str(path)), find_decoder(preset)
    assert (read.params, read.token_params, read.weights.dtype) == (
        known.params,
        known.token_params,
        known.weights.dtype,
    )


@pytest.mark.parametrize("change", [{"vocab_size": None}, {"mlp_only_layers": [3]}, {"decoder_sparse_step": 2}])
def test_what_a_config_json_does_not_say_is_not_guessed(change: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG | change))
    with pytest.raises(ConfigError, match=r"widths of its matrices are not known.*table weights"):
        find_decoder(str(path))


def test_widths_that_contradict_each_other_name_the_file(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(
        '[models.mine]\nlayers = 2\nkv_heads = 1\nhead_dim = 64\ndtype = "bf16"\n'
        "weights = { hidden = 64, heads = 1, vocab = 100, experts = 4, experts_per_token = 8, expert_ffn = 9 }\n"
    )
    with pytest.raises(ConfigError, match=r'own.toml, \[models."mine"\]: weights: experts = 4, experts_per_token = 8'):
        find_decoder("mine", own)
