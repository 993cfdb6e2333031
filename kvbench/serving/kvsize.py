"""How many bytes the KV cache of a model takes, per rank and in total, and how many tokens fit into bytes.

A :class:`KvShape` is what a model keeps for a request. A :class:`KvLayout` is a shape spread over the
ranks of one worker. All figures are exact integers:

    bytes of a request = fixed + tokens × (full layers) + min(tokens, window) × (window layers)

where the fixed part is the state of Mamba or linear-attention layers, which does not grow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kvbench.errors import ConfigError, shorten
from kvbench.plugins import did_you_mean

if TYPE_CHECKING:
    from kvbench.serving.weights import WeightShape

DTYPE_BITS = {"fp32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "fp4": 4, "int4": 4}
"""Bits of one stored number, without the scales of quantized ones."""

DTYPE_ALIASES = {
    "float32": "fp32",
    "float": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
}
"""What configurations and engines call them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateShape:
    """State of constant size that Mamba-1, Mamba-2 or gated linear-attention layers keep for a request.

    A layer holds heads × head_dim × state_dim numbers, and the last conv_kernel − 1 inputs of its
    convolution, which is heads × head_dim + 2 × groups × state_dim wide. Over ranks, heads are split;
    groups are too, and replicate when there are more ranks than groups. Source: vLLM 0.11
    ``MambaStateShapeCalculator.mamba2_state_shape`` (gated delta nets: groups are key heads; Mamba-1:
    heads of one channel and no groups).

    ``dtype``  of these numbers; the KV dtype does not change it.
    """

    layers: int
    heads: int
    head_dim: int
    state_dim: int
    conv_kernel: int
    groups: int = 0
    dtype: str = "bf16"

    def rank_bytes(self, tp: int) -> int:
        """Bytes that one of ``tp`` ranks keeps for a request."""
        heads = _split(self.heads, tp)
        groups = _split(self.groups, tp) if self.groups else 0
        convolved = heads * self.head_dim + 2 * groups * self.state_dim
        numbers = heads * self.head_dim * self.state_dim + (self.conv_kernel - 1) * convolved
        return self.layers * _bytes(numbers, self.dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class KvShape:
    """What a model keeps for a request.

    ``full_layers``    attention layers that keep every token.
    ``window_layers``  attention layers that keep the last ``window`` tokens.
    ``kv_heads``, ``head_dim``, ``value_dim``  KV heads, width of a key, width of a value (None: that of a key).
    ``latent_dim``, ``rope_dim``  multi-head latent attention (MLA): a layer keeps one latent vector and
                       one rotary key for a token instead of heads, and every rank keeps the same.
    ``dtype``          of keys and values.
    ``scale_bytes``    of the scales beside each stored vector (the key and the value of a head, or the latent).
    ``state``, ``fixed_bytes``  constant bytes of a request; ``fixed_bytes`` are split evenly over ranks.
    ``source``         where the figures are from; ``notes`` what they leave out.
    ``weights``        the widths of its matrices; None: not known.
    """

    name: str
    full_layers: int
    dtype: str
    window_layers: int = 0
    window: int | None = None
    kv_heads: int = 0
    head_dim: int = 0
    value_dim: int | None = None
    latent_dim: int = 0
    rope_dim: int = 0
    scale_bytes: int = 0
    state: StateShape | None = None
    fixed_bytes: int = 0
    source: str = ""
    notes: tuple[str, ...] = ()
    weights: WeightShape | None = None

    @property
    def is_mla(self) -> bool:
        """Whether all ranks keep the same latent vectors."""
        return self.latent_dim > 0

    @property
    def layers(self) -> int:
        """Attention layers."""
        return self.full_layers + self.window_layers

    def with_dtype(self, dtype: str | None, scale_bytes: int = 0) -> KvShape:
        """This shape with KV of another dtype; the constant state keeps its own.

        Raises ConfigError for scales of a dtype that has none.
        """
        kind = self.dtype if dtype is None else parse_dtype(dtype, "--dtype")
        if scale_bytes < 0:
            raise ConfigError(f"--scale-bytes = {scale_bytes} must not be negative")
        if scale_bytes and DTYPE_BITS[kind] > 8:
            raise ConfigError(f"--scale-bytes has no effect with {kind}; give --dtype fp8, int8, fp4 or int4")
        return replace(self, dtype=kind, scale_bytes=scale_bytes)

    def layer_bytes(self, tp: int) -> int:
        """Bytes that one of ``tp`` ranks keeps for a token in one attention layer."""
        if self.is_mla:
            return _bytes(self.latent_dim + self.rope_dim, self.dtype) + self.scale_bytes
        width = self.head_dim + (self.head_dim if self.value_dim is None else self.value_dim)
        return _split(self.kv_heads, tp) * (_bytes(width, self.dtype) + 2 * self.scale_bytes) if self.layers else 0

    def rank_fixed_bytes(self, tp: int) -> int:
        """Bytes that one of ``tp`` ranks keeps for a request however short it is."""
        return -(-self.fixed_bytes // tp) + (self.state.rank_bytes(tp) if self.state else 0)


@dataclass(frozen=True, slots=True)
class KvLayout:
    """A shape over the ranks of one worker.

    ``ranks``       tensor-parallel ranks; KV heads replicate when there are more ranks than heads.
    ``once``        MLA only: the same latent vectors are stored by the first rank alone, not by each.
    """

    shape: KvShape
    ranks: int = 1
    once: bool = False

    def __post_init__(self) -> None:
        if self.ranks < 1:
            raise ConfigError(f"--tp = {self.ranks} must be at least 1")
        if self.once and not self.shape.is_mla:
            raise ConfigError(
                f"--save-only-first-rank has no effect with {self.shape.name}: its ranks hold different heads, "
                "so each must store its own; leave it out"
            )

    @property
    def name(self) -> str:
        """Of the model."""
        return self.shape.name

    @property
    def stored_ranks(self) -> int:
        """How many ranks store a token."""
        return 1 if self.once else self.ranks

    @property
    def rank_bytes_per_token(self) -> int:
        """Of one rank, while all layers keep the token (that is: within the window)."""
        return self.shape.layers * self.shape.layer_bytes(self.ranks)

    @property
    def bytes_per_token(self) -> int:
        """Over the ranks of a worker, while all layers keep the token (that is: within the window)."""
        return self.stored_ranks * self.rank_bytes_per_token

    @property
    def rank_growth_bytes(self) -> int:
        """What each token beyond the window adds on one rank; without window layers: any token."""
        return self.shape.full_layers * self.shape.layer_bytes(self.ranks)

    @property
    def growth_bytes(self) -> int:
        """What each token beyond the window adds over the ranks of a worker."""
        return self.stored_ranks * self.rank_growth_bytes

    @property
    def rank_fixed_bytes(self) -> int:
        """Of a request on one rank, however short it is."""
        return self.shape.rank_fixed_bytes(self.ranks)

    @property
    def fixed_bytes(self) -> int:
        """Of a request over the ranks of a worker, however short it is; ranks hold different parts of it."""
        return self.ranks * self.rank_fixed_bytes

    def rank_block_bytes(self, block_tokens: int) -> int:
        """KV of ``block_tokens`` tokens in all attention layers on one rank, as a store keeps it.

        Window layers count in full, because a block is stored before it is known how it will be used;
        the constant state of a request is in no block.
        """
        return check_tokens(block_tokens, "--block-tokens") * self.rank_bytes_per_token

    def block_bytes(self, block_tokens: int) -> int:
        """The same over the ranks of a worker."""
        return self.stored_ranks * self.rank_block_bytes(block_tokens)

    def rank_bytes_of(self, tokens: int) -> int:
        """Bytes of one request of ``tokens`` tokens on one rank."""
        return self.rank_fixed_bytes + self._rank_kv_bytes(tokens)

    def bytes_of(self, tokens: int) -> int:
        """Bytes of one request of ``tokens`` tokens over the ranks of a worker."""
        return self.fixed_bytes + self.stored_ranks * self._rank_kv_bytes(tokens)

    def rank_tokens_of(self, size: int) -> int | None:
        """The longest request whose part fits into ``size`` bytes of each rank: the inverse of
        :meth:`rank_bytes_of`. 0 if not even one token fits, None if any length does."""
        return self._tokens_in(size - self.rank_fixed_bytes)

    def tokens_of(self, size: int) -> int | None:
        """The longest request that fits into ``size`` bytes over the ranks of a worker: the inverse of
        :meth:`bytes_of`. 0 if not even one token fits, None if any length does."""
        return self._tokens_in((size - self.fixed_bytes) // self.stored_ranks)

    def _rank_kv_bytes(self, tokens: int) -> int:
        windowed = min(tokens, self.shape.window or 0)
        return tokens * self.rank_growth_bytes + windowed * (self.rank_bytes_per_token - self.rank_growth_bytes)

    def _tokens_in(self, room: int) -> int | None:
        """The most tokens whose KV fits into ``room`` bytes of one rank."""
        if room < 0:
            return 0
        window = self.shape.window or 0
        within, growth = self.rank_bytes_per_token, self.rank_growth_bytes
        if room < window * within:
            return room // within
        return None if growth == 0 else window + (room - window * within) // growth


def parse_dtype(text: str, setting: str) -> str:
    """The name in :data:`DTYPE_BITS` of a dtype under any of its names. Raises ConfigError."""
    name = text.strip().lower().removeprefix("torch.")
    name = DTYPE_ALIASES.get(name, name)
    if name not in DTYPE_BITS:
        raise ConfigError(f"{setting} = {shorten(text)} is not a dtype of KV; {did_you_mean(name, list(DTYPE_BITS))}")
    return name


def check_tokens(tokens: int, setting: str) -> int:
    """``tokens`` if it is at least 1; else ConfigError."""
    if tokens < 1:
        raise ConfigError(f"{setting} = {tokens} must be at least 1")
    return tokens


def _split(heads: int, tp: int) -> int:
    """Heads of one of ``tp`` ranks: an even part, rounded up, and one at least."""
    return max(1, -(-heads // tp))


def _bytes(numbers: int, dtype: str) -> int:
    return -(-numbers * DTYPE_BITS[dtype] // 8)
