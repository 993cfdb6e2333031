"""Shapes from config.json files, in the forms that model families write."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvbench.errors import ConfigError
from kvbench.serving import KvShape, StateShape, read_config

Read = Callable[..., KvShape]

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "torch_dtype": "bfloat16",
}
MAMBA = {
    "mamba_n_heads": 128,
    "mamba_d_head": 64,
    "mamba_d_state": 128,
    "mamba_d_conv": 4,
    "mamba_n_groups": 1,
}


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Reads a config.json of these values; those that are ``...`` are left out."""

    def of(values: dict[str, Any], **changes: Any) -> KvShape:
        kept = {key: value for key, value in (values | changes).items() if value is not ...}
        path = tmp_path / "config.json"
        path.write_text(json.dumps(kept))
        return read_config(path)

    return of


def heads(shape: KvShape) -> tuple[int, int, int]:
    return shape.layers, shape.kv_heads, shape.head_dim


def windows(shape: KvShape) -> tuple[int, int, int | None]:
    return shape.full_layers, shape.window_layers, shape.window


def test_f01_the_head_dim_is_the_width_over_the_heads(read: Read) -> None:
    assert heads(read(LLAMA)) == (32, 8, 128)


def test_an_explicit_head_dim_wins(read: Read) -> None:
    assert heads(read(LLAMA, head_dim=64)) == (32, 8, 64)


def test_without_kv_heads_every_head_keeps_kv(read: Read) -> None:
    assert read(LLAMA, num_key_value_heads=...).kv_heads == 32


@pytest.mark.parametrize(
    ("values", "kv_heads"),
    [
        ({"n_layer": 32, "n_head": 71, "hidden_size": 4544, "multi_query": True, "torch_dtype": "bfloat16"}, 1),
        ({"num_layers": 28, "num_attention_heads": 32, "multi_query_group_num": 2, "kv_channels": 128}, 2),
        ({"n_layers": 40, "n_heads": 48, "d_model": 6144, "attn_config": {"kv_n_heads": 8}}, 8),
    ],
)
def test_older_families_have_other_keys(read: Read, values: dict[str, Any], kv_heads: int) -> None:
    assert read({"torch_dtype": "float16"} | values).kv_heads == kv_heads


def test_mla_is_known_by_its_latent(read: Read) -> None:
    shape = read(LLAMA, kv_lora_rank=512, qk_rope_head_dim=64, v_head_dim=128, num_nextn_predict_layers=1)
    assert (shape.latent_dim, shape.rope_dim, shape.kv_heads) == (512, 64, 0)
    assert shape.notes == ("the layers of multi-token prediction are not counted",)


def test_values_may_be_narrower_than_keys(read: Read) -> None:
    assert read(LLAMA, head_dim=192, v_head_dim=128).layer_bytes(1) == 8 * (192 + 128) * 2


def test_listed_layer_types_say_which_have_windows(read: Read) -> None:
    kinds = ["sliding_attention", "full_attention"] * 16
    assert windows(read(LLAMA, layer_types=kinds, sliding_window=128)) == (16, 16, 128)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"model_type": "mistral", "sliding_window": 4096}, (0, 32, 4096)),
        ({"model_type": "mistral", "sliding_window": None}, (32, 0, None)),
        ({"model_type": "phi3", "sliding_window": 262144, "max_position_embeddings": 131072}, (32, 0, None)),
        ({"model_type": "gemma2", "sliding_window": 4096}, (16, 16, 4096)),
        ({"model_type": "gemma3_text", "sliding_window": 1024}, (5, 27, 1024)),
        ({"model_type": "x", "sliding_window": 1024, "sliding_window_pattern": 4}, (8, 24, 1024)),
        ({"model_type": "exaone4", "sliding_window": 4096, "sliding_window_pattern": "LLLG"}, (8, 24, 4096)),
        ({"model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": False}, (32, 0, None)),
        ({"model_type": "qwen2", "sliding_window": 4096, "max_window_layers": 28}, (32, 0, None)),
        (
            {"model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 28},
            (28, 4, 4096),
        ),
    ],
)
def test_windows_follow_the_rules_of_the_family(
    read: Read, changes: dict[str, Any], expected: tuple[int, int, int | None]
) -> None:
    assert windows(read(LLAMA, **changes)) == expected


def test_the_text_part_of_a_model_of_several_modalities_is_read(read: Read) -> None:
    text = {key: value for key, value in LLAMA.items() if key != "torch_dtype"}
    shape = read({"model_type": "gemma3", "torch_dtype": "bfloat16", "text_config": text})
    assert (heads(shape), shape.dtype) == ((32, 8, 128), "bf16")


def test_f05_mamba_layers_keep_a_state_beside_the_attention_layers(read: Read) -> None:
    kinds = ["mamba"] * 7 + ["attention"]
    shape = read(LLAMA, layer_types=kinds * 4, **MAMBA)
    assert shape.full_layers == 4
    assert shape.state == StateShape(layers=28, heads=128, head_dim=64, state_dim=128, conv_kernel=4, groups=1)


def test_mamba_keys_without_mamba_layers_keep_nothing(read: Read) -> None:
    assert read(LLAMA, layer_types=["attention"] * 32, **MAMBA).state is None


def test_the_pattern_of_nemotron_h_is_read(read: Read) -> None:
    shape = read(
        LLAMA,
        num_hidden_layers=6,
        hybrid_override_pattern="M-M*M-",
        head_dim=128,
        mamba_num_heads=128,
        mamba_head_dim=64,
        ssm_state_size=128,
        conv_kernel=4,
        n_groups=8,
    )
    assert shape.full_layers == 1
    assert shape.state == StateShape(layers=3, heads=128, head_dim=64, state_dim=128, conv_kernel=4, groups=8)


def test_the_mamba_1_layers_of_jamba_have_heads_of_one_channel(read: Read) -> None:
    shape = read(LLAMA, attn_layer_period=8, attn_layer_offset=4, mamba_expand=2, mamba_d_state=16, mamba_d_conv=4)
    assert shape.full_layers == 4
    assert shape.state is not None
    assert shape.state.rank_bytes(1) == 28 * 2 * (8192 * 16 + 3 * 8192)


def test_linear_attention_keeps_a_state_with_groups_of_key_heads(read: Read) -> None:
    shape = read(
        LLAMA,
        full_attention_interval=4,
        linear_num_value_heads=32,
        linear_num_key_heads=16,
        linear_value_head_dim=128,
        linear_key_head_dim=128,
        linear_conv_kernel_dim=4,
    )
    assert shape.full_layers == 8
    assert shape.state == StateShape(layers=24, heads=32, head_dim=128, state_dim=128, conv_kernel=4, groups=16)


def test_f04_quantized_weights_leave_the_kv_as_it_is(read: Read) -> None:
    assert read(LLAMA, quantization_config={"quant_method": "fp8"}).dtype == "bf16"


@pytest.mark.parametrize(
    "quantization", [{"kv_cache_scheme": {"num_bits": 8, "type": "float"}}, {"kv_cache_quant_algo": "FP8"}]
)
def test_f04_a_quantization_of_the_kv_is_applied(read: Read, quantization: dict[str, Any]) -> None:
    assert read(LLAMA, quantization_config=quantization).dtype == "fp8"


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"num_hidden_layers": ...}, "num_hidden_layers: is missing; add it"),
        ({"num_attention_heads": ...}, "num_attention_heads: is missing; add it"),
        ({"hidden_size": ...}, "hidden_size: is missing; add it"),
        ({"hidden_size": 4097}, "head_dim: is missing, and hidden_size = 4097 is no multiple"),
        ({"torch_dtype": ...}, "torch_dtype: is missing; give --dtype"),
        ({"torch_dtype": 3}, "torch_dtype: 3 is not a text"),
        ({"torch_dtype": "bf15"}, "torch_dtype = 'bf15' is not a dtype"),
        ({"num_key_value_heads": "8"}, "num_key_value_heads: '8' is not a whole number"),
        ({"num_key_value_heads": True}, "num_key_value_heads: True is not a whole number"),
        ({"kv_lora_rank": 512}, "qk_rope_head_dim: is missing"),
        ({"layer_types": ["full_attention"]}, "layer_types: does not name the kinds of 32 layers"),
        ({"layer_types": ["conv"] * 32}, "layer_types: layers of kind 'conv' are not known"),
        ({"layer_types": ["sliding_attention"] * 32}, "sliding_window: is missing"),
        ({"attention_chunk_size": 8192}, "attention_chunk_size: this model is not supported"),
        (MAMBA, "mamba_d_state: the model has layers with a constant state"),
    ],
)
def test_an_incomplete_config_is_refused_with_file_and_key(read: Read, changes: dict[str, Any], part: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read(LLAMA, **changes)
    assert "config.json, " in str(raised.value)
    assert part in str(raised.value)


@pytest.mark.parametrize(
    ("content", "part"), [(b"{", "not valid JSON"), (b"[]", "not a JSON object"), (b"\xff", "JSON")]
)
def test_a_file_that_is_no_config_is_refused(tmp_path: Path, content: bytes, part: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=part):
        read_config(path)


def test_a_config_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be read: No such file or directory; give the config.json"):
        read_config(tmp_path / "config.json")
