"""The matrices of a model: how many parameters it has, and how many of them a token uses.

A decoder is layers of attention (or of a constant state) and a feed-forward part, between an embedding
and a head. Norms and biases, a few thousandths, are left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from kvbench.errors import ConfigError
from kvbench.serving.kvsize import DTYPE_BITS

if TYPE_CHECKING:
    from kvbench.serving.kvsize import KvShape

GATED, PLAIN = 3, 2
"""Matrices of a feed-forward part with a gate, and without one."""


class WeightShape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Widths of a model's matrices, a table ``weights``; those of keys and values are in its :class:`KvShape`.

    ``hidden``, ``vocab``  width of the model, and words of its embedding and head (one matrix if ``tied``).
    ``heads``          query heads.
    ``ffn``            width of the feed-forward part of dense layers (``gated``: three matrices, else two).
    ``experts``, ``experts_per_token``, ``expert_ffn``  of the other layers (mixture of experts).
    ``shared_ffn``     width of the experts in these layers that every token uses, in all.
    ``dense_layers``   leading layers without experts, where the others have them.
    ``q_latent``, ``nope_dim``, ``mla_value_dim``  MLA: rank of the queries (0: full), width of a key without its
                       rotary part, and of a value.
    ``dtype``, ``expert_dtype``  of the stored weights, and of those of experts (None: the same).
    """

    hidden: int
    vocab: int
    heads: int
    ffn: int = 0
    gated: bool = True
    tied: bool = False
    experts: int = 0
    experts_per_token: int = 0
    expert_ffn: int = 0
    shared_ffn: int = 0
    dense_layers: int = 0
    q_latent: int = 0
    nope_dim: int = 0
    mla_value_dim: int = 0
    dtype: str = "bf16"
    expert_dtype: str | None = None

    def check(self, where: str) -> None:
        """Raise ConfigError for widths that contradict each other."""
        if min(self.hidden, self.vocab, self.heads) < 1:
            raise ConfigError(f"{where}: hidden, vocab and heads are at least 1")
        if not 0 <= self.experts_per_token <= self.experts or (self.experts > 0) != (self.expert_ffn > 0):
            raise ConfigError(
                f"{where}: experts = {self.experts}, experts_per_token = {self.experts_per_token} and expert_ffn = "
                f"{self.expert_ffn} do not fit together"
            )
        if self.experts and not self.experts_per_token:
            raise ConfigError(f"{where}: experts_per_token must be at least 1")


@dataclass(frozen=True, slots=True)
class Decoder:
    """A model's matrices and what it keeps, together: counts of parameters."""

    kv: KvShape
    weights: WeightShape

    @property
    def state_layers(self) -> int:
        """Layers that keep a constant state."""
        return self.kv.state.layers if self.kv.state else 0

    @property
    def layers(self) -> int:
        """All layers."""
        return self.kv.layers + self.state_layers

    @property
    def expert_layers(self) -> int:
        """Layers with experts."""
        return self.layers - self.weights.dense_layers if self.weights.experts else 0

    @property
    def key_dim(self) -> int:
        """Width of a key as attention multiplies it in prefill."""
        return self.weights.nope_dim + self.kv.rope_dim if self.kv.is_mla else self.kv.head_dim

    @property
    def value_dim(self) -> int:
        """Width of a value as attention multiplies it in prefill."""
        if self.kv.is_mla:
            return self.weights.mla_value_dim
        return self.kv.head_dim if self.kv.value_dim is None else self.kv.value_dim

    @property
    def attention_params(self) -> int:
        """Of one attention layer."""
        w, kv = self.weights, self.kv
        out = w.heads * self.value_dim * w.hidden
        if not kv.is_mla:
            return w.hidden * (w.heads * self.key_dim + kv.kv_heads * (self.key_dim + self.value_dim)) + out
        rank = w.q_latent
        queries = w.heads * self.key_dim * (rank or w.hidden) + w.hidden * rank
        keys = w.hidden * (kv.latent_dim + kv.rope_dim) + kv.latent_dim * w.heads * (w.nope_dim + self.value_dim)
        return queries + keys + out

    @property
    def state_params(self) -> int:
        """Of one layer with a constant state: its projections in and out."""
        state = self.kv.state
        if state is None:
            return 0
        inner = state.heads * state.head_dim
        steps = state.heads if state.groups else 0
        return self.weights.hidden * (3 * inner + 2 * state.groups * state.state_dim + steps)

    @property
    def expert_params(self) -> int:
        """Of one expert in one layer."""
        return GATED * self.weights.hidden * self.weights.expert_ffn

    @property
    def head_params(self) -> int:
        """Of the head: used once for each token that is generated."""
        return self.weights.vocab * self.weights.hidden

    @property
    def common_params(self) -> int:
        """What every token uses: all but embedding, head and the experts that are chosen."""
        w = self.weights
        dense = (GATED if w.gated else PLAIN) * w.hidden * w.ffn
        sparse = w.hidden * w.experts + GATED * w.hidden * w.shared_ffn
        mixers = self.kv.layers * self.attention_params + self.state_layers * self.state_params
        return mixers + (self.layers - self.expert_layers) * dense + self.expert_layers * sparse

    @property
    def token_params(self) -> int:
        """What one token of a prompt is multiplied with."""
        return self.common_params + self.expert_layers * self.weights.experts_per_token * self.expert_params

    @property
    def params(self) -> int:
        """All of the model."""
        experts = self.expert_layers * self.weights.experts * self.expert_params
        return self.common_params + experts + (1 if self.weights.tied else 2) * self.head_params

    def stored_bytes(self, dtype: str | None = None) -> int:
        """Of all weights; with ``dtype`` instead of their own."""
        size, expert_size = self.weight_bytes(dtype)
        experts = self.expert_layers * self.weights.experts * self.expert_params
        return math.ceil((self.params - experts) * size + experts * expert_size)

    @property
    def attention_flops(self) -> int:
        """Of one attention layer for each pair of a new token and one it looks at, in prefill."""
        return 2 * self.weights.heads * (self.key_dim + self.value_dim)

    @property
    def decode_attention_flops(self) -> int:
        """The same in decode, where MLA multiplies the latent vectors themselves."""
        if not self.kv.is_mla:
            return self.attention_flops
        return 2 * self.weights.heads * (2 * self.kv.latent_dim + self.kv.rope_dim)

    def weight_bytes(self, dtype: str | None) -> tuple[float, float]:
        """Bytes of a parameter, and of one of an expert; with ``dtype`` of both."""
        experts = self.weights.expert_dtype or self.weights.dtype
        return DTYPE_BITS[dtype or self.weights.dtype] / 8, DTYPE_BITS[dtype or experts] / 8
