"""What a capacity holds. A size in bytes says nothing until it says whose: each rank's, a host's or the cluster's."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from kvbench.errors import ConfigError
from kvbench.serving.kvsize import check_tokens
from kvbench.units import format_bytes

if TYPE_CHECKING:
    from kvbench.serving.kvsize import KvLayout
    from kvbench.serving.weights import Decoder

SCOPES = ("rank", "host", "cluster")
"""Whom a capacity can belong to, the smallest first."""

DEFAULT_UTILIZATION = 0.9
"""vLLM's default."""


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes of one rank, host or cluster, and the blocks, tokens in blocks, and equal requests they hold.

    All is spread over the ranks of a worker: a rank's ``blocks`` are those it keeps a part of.
    ``requests``  None if no length was given, or if a request takes no bytes.
    """

    size: int
    blocks: int
    tokens: int
    requests: int | None = None


@dataclass(frozen=True, slots=True)
class Holding:
    """What a capacity holds at every scope.

    ``scope``  whose bytes were given; figures of smaller scopes are even shares, those of larger ones multiples.
    ``longest_request_tokens``  the longest request that fits at that scope; None: any.
    """

    scope: str
    rank: Room
    host: Room
    cluster: Room
    longest_request_tokens: int | None


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Bytes of a rank, a host and the cluster, and how many workers and hosts share them."""

    scope: str
    rank: int
    host: int
    cluster: int
    workers: int
    hosts: int

    def fit(self, rank_need: int, need: int) -> tuple[int, int, int]:
        """How many things fit at each scope that take ``rank_need`` bytes of each rank of a worker, or
        ``need`` over them. A pool is shared by all of its scope: a host's by its workers."""
        by_rank = self.rank // rank_need
        by_host = by_rank * self.workers if self.scope == "rank" else self.host // need
        return by_rank, by_host, self.cluster // need if self.scope == "cluster" else by_host * self.hosts


def capacity_of(
    layout: KvLayout,
    size: int,
    scope: str,
    *,
    block_tokens: int,
    request_tokens: int | None = None,
    workers: int = 1,
    hosts: int = 1,
) -> Holding:
    """What ``size`` bytes per ``scope`` hold with ``workers`` workers a host and ``hosts`` hosts.

    ``request_tokens``  also count requests of this length that run at the same time and share nothing.

    Only ranks that store count: the first of each worker where MLA is stored once. Raises ConfigError,
    with the bytes needed, if not one block fits.
    """
    for count, setting in ((workers, "--workers"), (hosts, "--hosts")):
        if count < 1:
            raise ConfigError(f"{setting} = {count} must be at least 1")
    if scope not in SCOPES:
        raise ConfigError(f"--scope = {scope!r} is not one of {', '.join(SCOPES)}")
    _check_room(layout, size, scope, block_tokens)
    ranks = layout.stored_ranks * workers
    host = {"rank": size * ranks, "host": size, "cluster": size // hosts}[scope]
    sizes = _Sizes(
        scope,
        rank=size if scope == "rank" else host // ranks,
        host=host,
        cluster=size if scope == "cluster" else host * hosts,
        workers=workers,
        hosts=hosts,
    )
    blocks = sizes.fit(layout.rank_block_bytes(block_tokens), layout.block_bytes(block_tokens))
    requests: tuple[int | None, ...] = (None, None, None)
    if request_tokens is not None and layout.bytes_of(request_tokens):
        requests = sizes.fit(layout.rank_bytes_of(request_tokens), layout.bytes_of(request_tokens))
    rank, host_room, cluster = (
        Room(held, count, count * block_tokens, of_length)
        for held, count, of_length in zip((sizes.rank, sizes.host, sizes.cluster), blocks, requests, strict=True)
    )
    longest = layout.rank_tokens_of(size) if scope == "rank" else layout.tokens_of(size)
    return Holding(scope, rank, host_room, cluster, longest)


def left_by_weights(decoder: Decoder, memory: int, ranks: int, utilization: float = DEFAULT_UTILIZATION) -> int:
    """Bytes of KV that a GPU of ``memory`` bytes has room for beside its part of the weights, one of ``ranks``.

    ``utilization``  share of the memory that the engine takes, weights included (vLLM's
                     ``gpu_memory_utilization``).

    Raises ConfigError if the weights leave nothing.
    """
    if not 0 < utilization <= 1:
        raise ConfigError(f"--utilization = {utilization:g} must be above 0 and at most 1")
    weights = -(-decoder.stored_bytes() // ranks)
    left = math.floor(memory * Fraction(repr(utilization))) - weights
    if left <= 0:
        raise ConfigError(
            f"--gpu: {utilization:g} of {format_bytes(memory)} hold no weights of {decoder.kv.name}, which are "
            f"{format_bytes(weights)} on each of {ranks} ranks; give a larger --tp"
        )
    return left


def _check_room(layout: KvLayout, size: int, scope: str, block_tokens: int) -> None:
    check_tokens(block_tokens, "--block-tokens")
    need = layout.rank_block_bytes(block_tokens) if scope == "rank" else layout.block_bytes(block_tokens)
    if need == 0:
        raise ConfigError(
            f"--capacity has no effect with {layout.name}: it has no attention layers, so its requests have no blocks"
        )
    if size < need:
        raise ConfigError(
            f"--capacity {size:,} bytes per {scope} holds no block: a block of {block_tokens} tokens of {layout.name} "
            f"at TP {layout.ranks} needs {need:,} bytes ({format_bytes(need)}) per {scope}; give at least {need}B"
        )
