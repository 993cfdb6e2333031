"""The hit rates that serving systems print, each by its own definition.

They are ratios of sums over requests and differ in what they count and in what they divide by; the
same replay gives all of them. A rate of nothing is None, where the systems print 0 or 1.
"""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSums:
    """Sums of tokens over requests.

    ``prompt``     P: tokens of prompts.
    ``aligned``    ⌊P⌋: the same in whole chunks, request by request.
    ``device``     G: tokens that the engine's own cache (the GPU tier) hit.
    ``lookup``     K: tokens of the prefix that the cache behind it holds by itself.
    ``chunked``    ⌊K⌋: the same in whole chunks.
    ``external``   X: tokens that the cache behind supplied.
    ``asked``      R: tokens that were to be fetched from it.
    ``delivered``  H: tokens that were.
    """

    prompt: int = 0
    aligned: int = 0
    device: int = 0
    lookup: int = 0
    chunked: int = 0
    external: int = 0
    asked: int = 0
    delivered: int = 0

    def plus(self, other: TokenSums) -> TokenSums:
        """The sums over both sets of requests."""
        return TokenSums(
            **{field.name: getattr(self, field.name) + getattr(other, field.name) for field in fields(self)}
        )


@dataclass(frozen=True, slots=True)
class HitRate:
    """One definition: ``hit`` and ``total`` are fields of :class:`TokenSums`; ``less`` is taken from ``total``."""

    name: str
    formula: str
    source: str
    hit: str
    total: str
    less: str = ""

    def of(self, sums: TokenSums) -> float | None:
        """The rate; None where its denominator is 0."""
        total: int = getattr(sums, self.total) - (getattr(sums, self.less) if self.less else 0)
        return getattr(sums, self.hit) / total if total > 0 else None


HIT_RATES = (
    HitRate("vllm_local", "ΣG / ΣP", "vllm:prefix_cache_hits / _queries", "device", "prompt"),
    HitRate(
        "vllm_external", "ΣX / Σ(P-G)", "vllm:external_prefix_cache_hits / _queries", "external", "prompt", "device"
    ),
    HitRate("lmcache_lookup", "ΣK / ΣP", "lmcache:lookup_hit_rate", "lookup", "prompt"),
    HitRate("lmcache_retrieve", "ΣH / ΣR", "lmcache:retrieve_hit_rate", "delivered", "asked"),
    HitRate("lmcache_mp_lookup", "Σ⌊K⌋ / Σ⌊P⌋", "lmcache_mp.lookup_hit / lookup_requested", "chunked", "aligned"),
    HitRate("lmcache_simulator", "Σ⌊K⌋ / ΣP", "LMCache's simulator", "chunked", "prompt"),
)
"""Vocabulary: P prompt tokens; G hit on the GPU; K held by the tiers behind it; X supplied by them;
R asked of them, H delivered; ⌊ ⌋ in whole chunks. Where tiers are exclusive or spill, the head of a
prefix lies above, and K says little."""


def hit_rates(sums: TokenSums) -> dict[str, float | None]:
    """All rates by name."""
    return {rate.name: rate.of(sums) for rate in HIT_RATES}
