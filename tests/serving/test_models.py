"""Presets, and files of one's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvbench.errors import ConfigError
from kvbench.serving import kv_layout, load_models

BYTES_PER_TOKEN = {
    "Llama-2-7B": 524_288,
    "Llama-3.1-8B": 131_072,
    "Llama-3.1-70B": 327_680,
    "Llama-3.1-405B": 516_096,
    "Mixtral-8x7B": 131_072,
    "Qwen3-32B": 262_144,
    "granite-3.3-8b": 163_840,
    "DeepSeek-V3": 70_272,
    "gpt-oss-120b": 73_728,
}
"""Published or worked out by hand: 2 × layers × KV heads × head dim × 2 bytes, or layers × 576 × 2."""


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize(("model", "size"), BYTES_PER_TOKEN.items())
def test_presets_have_the_bytes_per_token_of_their_models(model: str, size: int) -> None:
    layout = kv_layout(model, 1)
    assert (layout.name, layout.bytes_per_token, layout.ranks) == (model, size, 1)


def test_every_preset_has_a_source_and_takes_bytes() -> None:
    for shape in load_models().values():
        assert shape.source.startswith("https://huggingface.co/"), shape.name
        layout = kv_layout(shape.name, 1)
        assert 0 < layout.growth_bytes <= layout.bytes_per_token


def test_names_are_found_in_any_case_and_by_repository() -> None:
    assert kv_layout("llama-3.1-8b").shape == kv_layout("meta-llama/Llama-3.1-8B").shape


def test_gemma_3_has_five_window_layers_for_each_full_one() -> None:
    shape = kv_layout("Gemma-3-27B").shape
    assert (shape.full_layers, shape.window_layers, shape.window) == (10, 52, 1024)


def test_a_dtype_of_ones_own_replaces_that_of_the_preset() -> None:
    assert kv_layout("Llama-3.1-8B", 2, "fp8").block_bytes(64) == 64 * 65_536


def test_mla_is_stored_once_on_request() -> None:
    once = kv_layout("DeepSeek-R1", 8, save_only_first_rank=True)
    assert once.block_bytes(64) == once.rank_block_bytes(64) == 64 * 70_272
    assert kv_layout("DeepSeek-R1", 8).block_bytes(64) == 8 * 64 * 70_272


def test_an_unknown_model_names_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match=r"unknown model 'Lama-3.1-8B'.*did you mean 'Llama-3.1-8B'\?"):
        kv_layout("Lama-3.1-8B")


def test_f08_a_file_adds_models_and_overrides_presets_by_name(tmp_path: Path) -> None:
    own = write(
        tmp_path / "own.toml",
        '[models."llama-3.1-8b"]\nlayers = 1\nkv_heads = 1\nhead_dim = 1\ndtype = "bf16"\n'
        '[models.mine]\nlayers = 2\nlatent_dim = 10\nrope_dim = 2\ndtype = "int8"\nfixed_bytes = 7\n',
    )
    assert kv_layout("Llama-3.1-8B", models_file=own).bytes_per_token == 4
    assert kv_layout("mine", models_file=own).bytes_of(3) == 7 + 3 * 24
    assert kv_layout("Llama-3.1-70B", models_file=own).bytes_per_token == 327_680
    assert kv_layout("Llama-3.1-8B").bytes_per_token == 131_072


GOOD = "layers = 2\nkv_heads = 1\nhead_dim = 8\ndtype = 'bf16'\n"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("[models.a]\nlayers = 2\nkv_heads = 1\nhead_dim = 8\n", "missing required field `dtype`"),
        ("[models.a]\n" + GOOD + "heads = 3\n", "unknown field `heads`"),
        ("[models.a]\n" + GOOD.replace("'bf16'", "'bf15'"), "dtype = 'bf15' is not a dtype"),
        ("[models.a]\n" + GOOD + "window_layers = 1\n", "window_layers and window come together"),
        ("[models.a]\n" + GOOD + "window_layers = 3\nwindow = 5\n", "window_layers = 3 is more than layers = 2"),
        ("[models.a]\n" + GOOD + "fixed_bytes = -1\n", "fixed_bytes = -1 must not be negative"),
        ("[models.a]\n" + GOOD + "latent_dim = 5\n", "give either kv_heads and head_dim, or latent_dim"),
        ("[models.a]\nlayers = 2\ndtype = 'bf16'\n", "give either kv_heads and head_dim, or latent_dim"),
        ("[a]\n" + GOOD, "unknown key 'a'"),
        ("models = 3", "unknown key 'models'"),
        ("[models.a", "not valid TOML"),
    ],
)
def test_a_wrong_file_of_models_is_refused_with_file_and_key(tmp_path: Path, text: str, part: str) -> None:
    path = write(tmp_path / "own.toml", text)
    with pytest.raises(ConfigError) as raised:
        load_models(path)
    assert str(path) in str(raised.value)
    assert part in str(raised.value)


def test_a_file_of_models_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none.toml: cannot be read: No such file"):
        load_models(tmp_path / "none.toml")


def test_a_config_of_hugging_face_is_a_model(tmp_path: Path) -> None:
    values = {"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096}
    folder = tmp_path / "tiny"
    folder.mkdir()
    path = write(folder / "config.json", json.dumps(values))
    assert kv_layout(str(path), 2, "fp16").bytes_per_token == 131_072
    assert kv_layout(str(folder), dtype="fp16").name == "tiny"
