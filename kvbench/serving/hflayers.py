"""Which layers of a Hugging Face model keep every token, which a window of them, and which a constant state."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvbench.errors import shorten
from kvbench.serving.kvsize import StateShape

if TYPE_CHECKING:
    from kvbench.serving.hfconfig import Config

FULL = ("full_attention", "attention", "global_attention", "*")
WINDOWED = ("sliding_attention", "sliding_window", "local_attention")
STATE = ("mamba", "mamba2", "linear_attention", "M")
NO_KV = ("mlp", "moe", "-", "E")
"""Names of layers in ``layer_types``, ``layers_block_type`` and ``hybrid_override_pattern``."""

DEFAULT_PATTERNS = {"gemma2": 2, "gemma3_text": 6, "gemma3": 6, "gpt_oss": 2, "cohere2": 4}
"""Models where every n-th layer is full and the others have windows, unless their file says otherwise.
Source: their configuration classes in transformers 4.56."""

WINDOW_IS_OFF = ("qwen2", "qwen2_moe", "qwen3", "qwen3_moe")
"""Models whose window needs ``use_sliding_window``, and then begins at ``max_window_layers``."""

STATE_KEYS = (
    "mamba_d_state",
    "ssm_state_size",
    "linear_key_head_dim",
    "linear_attn_config",
    "attn_type_list",
    "block_types",
)


@dataclass(frozen=True, slots=True)
class Layers:
    """How many layers of each kind; ``window`` in tokens."""

    full: int
    windowed: int = 0
    window: int | None = None
    state: int = 0


def count_layers(config: Config, total: int) -> Layers:
    """The kinds of the ``total`` layers of ``config``. Raises ConfigError where the file does not say."""
    kinds = _listed(config, total)
    if kinds is not None:
        key, names = kinds
        counted = _counted(config, key, names)
    else:
        _no_state(config)
        windowed = _windowed(config, total)
        counted = Layers(total - windowed, windowed)
    if counted.windowed == 0:
        return counted
    window = config.count("sliding_window", "sliding_window_size")
    if window >= config.count("max_position_embeddings", default=window + 1):
        return Layers(counted.full + counted.windowed, state=counted.state)  # no request gets that long
    return Layers(counted.full, counted.windowed, window, counted.state)


def read_state(config: Config, layers: int) -> StateShape | None:
    """The state that ``layers`` layers of Mamba-1, Mamba-2 or a gated delta net keep, in 16 bits (vLLM's
    default). Raises ConfigError for others."""
    if layers == 0:
        return None
    if config.values.get("linear_key_head_dim"):
        return StateShape(
            layers=layers,
            heads=config.count("linear_num_value_heads"),
            head_dim=config.count("linear_value_head_dim"),
            state_dim=config.count("linear_key_head_dim"),
            conv_kernel=config.count("linear_conv_kernel_dim"),
            groups=config.count("linear_num_key_heads"),
        )
    if config.values.get("mamba_n_heads") or config.values.get("mamba_num_heads"):
        return StateShape(
            layers=layers,
            heads=config.count("mamba_n_heads", "mamba_num_heads"),
            head_dim=config.count("mamba_d_head", "mamba_head_dim"),
            state_dim=config.count("mamba_d_state", "ssm_state_size"),
            conv_kernel=config.count("mamba_d_conv", "conv_kernel"),
            groups=config.count("mamba_n_groups", "n_groups"),
        )
    return StateShape(
        layers=layers,
        heads=config.count("mamba_expand") * config.count("hidden_size"),
        head_dim=1,
        state_dim=config.count("mamba_d_state"),
        conv_kernel=config.count("mamba_d_conv"),
    )


def _listed(config: Config, total: int) -> tuple[str, list[str]] | None:
    """The kind of each layer, under the key that says it."""
    values = config.values
    for key in ("layer_types", "layers_block_type", "hybrid_override_pattern"):
        names = values.get(key)
        if names is None:
            continue
        if not isinstance(names, list | str) or len(names) != total:
            raise config.error(key, f"does not name the kinds of {total} layers; correct it")
        return key, [str(name) for name in names]
    if values.get("attn_layer_period"):
        period, offset = config.count("attn_layer_period"), values.get("attn_layer_offset", 0)
        return "attn_layer_period", ["attention" if at % period == offset else "mamba" for at in range(total)]
    indices = values.get("attn_layer_indices")
    if isinstance(indices, list):
        return "attn_layer_indices", ["attention" if at in indices else "mamba" for at in range(total)]
    if values.get("full_attention_interval"):
        every = config.count("full_attention_interval")
        return "full_attention_interval", [
            "linear_attention" if (at + 1) % every else "attention" for at in range(total)
        ]
    return None


def _counted(config: Config, key: str, names: list[str]) -> Layers:
    counts = Counter(names)
    strange = [name for name in counts if name not in FULL + WINDOWED + STATE + NO_KV]
    if strange:
        raise config.error(
            key, f"layers of kind {shorten(strange[0])} are not known; describe the model in a file for --models"
        )
    full, windowed, state = (sum(counts[name] for name in kind) for kind in (FULL, WINDOWED, STATE))
    return Layers(full, windowed, state=state)


def _windowed(config: Config, total: int) -> int:
    """How many layers have a window, of a file that does not list them."""
    values = config.values
    kind = config.text("model_type")
    optional = kind in WINDOW_IS_OFF
    if not (values.get("sliding_window") or values.get("sliding_window_size")):
        return 0
    if values.get("use_sliding_window") is False or (optional and not values.get("use_sliding_window")):
        return 0
    if optional:
        return max(0, total - config.count("max_window_layers", default=total))
    for key in ("sliding_window_pattern", "_sliding_window_pattern"):
        pattern = values.get(key)
        if isinstance(pattern, str) and pattern:
            return sum(pattern[at % len(pattern)] == "L" for at in range(total))
        if pattern is not None:
            return total - total // config.count(key)
    every = DEFAULT_PATTERNS.get(kind)
    return total if every is None else total - total // every


def _no_state(config: Config) -> None:
    for key in STATE_KEYS:
        if config.values.get(key):
            raise config.error(
                key,
                "the model has layers with a constant state, but the file does not say which; "
                "describe it in a file for --models",
            )
