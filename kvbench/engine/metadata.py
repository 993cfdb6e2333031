"""What an engine's KV bytes depend on beside the tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kvbench.errors import ConfigError
from kvbench.tokens.cachekey import CacheKey

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMetadata:
    """The identity of one engine: engines share chunks where their :meth:`key` is equal but for the hash.

    ``model``       model name.
    ``world_size``  ranks that share the work.
    ``rank``        which of them this engine is, from 0.
    ``kv_dtype``    type of the KV entries.
    ``layout``      how the bytes are laid out, for example ``vllm``.
    ``mla``         the model keeps one latent that is the same on all ranks.
    ``save_only_first_rank``  with ``mla``: only rank 0 stores; all ranks read what it stored.
    ``adapter``     adapter, name and version.
    ``salt``        tenant salt.
    ``tags``        anything else. Their order does not matter, and one without a value is none.

    Raises ConfigError for a rank that is none of the world's, and for a setting without effect.
    """

    model: str = ""
    world_size: int = 1
    rank: int = 0
    kv_dtype: str = ""
    layout: str = ""
    mla: bool = False
    save_only_first_rank: bool = False
    adapter: str = ""
    salt: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.world_size < 1:
            raise ConfigError(f"world_size = {self.world_size} is below 1")
        if not 0 <= self.rank < self.world_size:
            raise ConfigError(f"rank = {self.rank} is none of a world of {self.world_size}: give 0 to world_size - 1")
        if self.save_only_first_rank and not self.mla:
            raise ConfigError("save_only_first_rank has no effect without mla: ranks hold different bytes")
        self.key(0)

    @property
    def passive(self) -> bool:
        """Whether the engine leaves storing to the first rank."""
        return self.save_only_first_rank and self.rank > 0

    def key(self, chunk_hash: int | bytes, tags: Mapping[str, str] | None = None) -> CacheKey:
        """The key of a chunk; ``tags`` of a request stand beside the engine's, and override them."""
        shared = self.save_only_first_rank
        return CacheKey(
            chunk_hash,
            model=self.model,
            world_size=1 if shared else self.world_size,
            rank=0 if shared else self.rank,
            kv_dtype=self.kv_dtype,
            layout=self.layout,
            adapter=self.adapter,
            salt=self.salt,
            tags=tuple({**self.tags, **(tags or {})}.items()),
        )

    def word(self, tags: Mapping[str, str] | None = None) -> int:
        """64 bits that set the namespace's keys apart; 0 for the empty namespace."""
        namespace = self.key(0, tags).namespace()
        return 0 if namespace.is_empty() else int.from_bytes(namespace.root()[:8], "little")
