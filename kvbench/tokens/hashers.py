"""The blocks of one prompt with their hashes: what a cache engine asks for.

:class:`BlockHasher` cuts a prompt into blocks of one size and chains them; :class:`SegmentHasher`
splits it at separators and hashes each segment alone. Either takes ready hashes in place of tokens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

import numpy as np

from kvbench.config import Tails
from kvbench.errors import ArgumentError, ConfigError
from kvbench.tokens.arrays import token_array, whole_number
from kvbench.tokens.hashes import ChainHash, make_hash
from kvbench.tokens.masks import Rules, leading_falses
from kvbench.tokens.ready import block_sizes, ready_hashes
from kvbench.tokens.separators import check_separator, segments

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from kvbench.tierconfig import PartChoice
    from kvbench.tokens.arrays import TokenSource
    from kvbench.tokens.hashes.base import Digest, Extra
    from kvbench.tokens.masks import Mask
    from kvbench.tokens.ready import Hashes, Offsets

    Int64s = npt.NDArray[np.int64]

USUAL_BLOCK_TOKENS = 256
"""The chunk size of LMCache and OPAL."""


@dataclass(frozen=True, slots=True)
class HashedBlocks:
    """n blocks of a prompt, in its order; iterates as ``(start, end, digest)``.

    ``starts``, ``ends``  int64, n; block i holds tokens ``starts[i]`` to ``ends[i] - 1``.
    ``digests``  the hash of each block, in full.
    ``keys``     uint64, n; what kvbench knows each block by.
    """

    starts: Int64s
    ends: Int64s
    digests: list[Digest]
    keys: npt.NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.digests)

    def __iter__(self) -> Iterator[tuple[int, int, Digest]]:
        return zip(self.starts.tolist(), self.ends.tolist(), self.digests, strict=True)

    def since(self, token: int) -> HashedBlocks:
        """The blocks that start at ``token`` or behind it."""
        first = int(np.searchsorted(self.starts, token))
        return HashedBlocks(self.starts[first:], self.ends[first:], self.digests[first:], self.keys[first:])


class PromptHasher(ABC):
    """``hashing``  the hash algorithm: one that is made already, or what :func:`make_hash` takes.
    ``rules``    ``strict``; or ``lmcache``, to take the masks and lists that LMCache 0.5.6 takes.

    Raises ConfigError for other rules.
    """

    def __init__(self, hashing: ChainHash | PartChoice = "blake3", *, rules: Rules = "strict") -> None:
        self.hashing = hashing if isinstance(hashing, ChainHash) else make_hash(hashing)
        _check_choice("rules", rules, get_args(Rules))
        self.rules = rules

    @abstractmethod
    def blocks(
        self,
        tokens: TokenSource | None = None,
        *,
        hashes: Hashes | None = None,
        offsets: Offsets | None = None,
        mask: Mask | None = None,
        parent: Digest | None = None,
    ) -> HashedBlocks:
        """The blocks of a prompt and their hashes.

        ``tokens``   the prompt; a list, a tuple, a NumPy or Arrow array of ids from 0 to 2³²-1.
        ``hashes``   in place of tokens: the hash of each block, taken as it is; an integer or bytes.
        ``offsets``  with ``hashes``: the number of tokens of each block.
        ``mask``     a boolean for each token: leading Falses leave out the blocks in front. Hashes do
                     not change by it, for they cover the tokens that it leaves out, too.
        ``parent``   what the first block is chained to, instead of the algorithm's root.

        Raises ArgumentError (a ValueError) for arguments that break a rule.
        """

    def given(self, hashes: Hashes | None, offsets: Offsets | None, mask: Mask | None) -> HashedBlocks:
        """The blocks of ready hashes."""
        if hashes is None:
            raise ArgumentError("neither tokens nor hashes are given")
        if offsets is None:
            raise ArgumentError("hashes without offsets: give the number of tokens of each block, too")
        digests, sizes = ready_hashes(hashes), block_sizes(offsets)
        if self.rules == "lmcache":
            count = min(len(digests), len(sizes))
            digests, sizes = digests[:count], sizes[:count]
        if len(digests) != len(sizes):
            raise ArgumentError(f"there are {len(digests)} hashes, and offsets of {len(sizes)} blocks")
        ends = np.cumsum(sizes, dtype=np.int64)
        keys = np.fromiter(map(self._key, digests), np.uint64, len(digests))
        found = HashedBlocks(ends - sizes, ends, digests, keys)
        return found.since(self.skipped(mask, int(ends[-1]) if len(ends) else 0, ends))

    def skipped(self, mask: Mask | None, length: int, ends: Int64s | None = None) -> int:
        """The token from which a mask asks on, of a prompt of ``length`` tokens. ``ends`` are those of its blocks
        where these are ready hashes, of which LMCache leaves none out. Raises ArgumentError."""
        if ends is None:
            return leading_falses(mask, length, self.rules)
        if self.rules == "lmcache":
            return 0
        falses = leading_falses(mask, length, self.rules)
        if falses and falses not in ends:
            raise ArgumentError(f"the mask has {falses} Falses, which is not where a block ends")
        return falses

    def _key(self, digest: Digest) -> int:
        """The key of a ready hash: an integer is one already."""
        return digest % 2**64 if isinstance(digest, int) else self.hashing.key(digest)


class BlockHasher(PromptHasher):
    """Blocks of ``block_tokens`` tokens, each hashed with all before it.

    ``tails``  ``drop``: a partial last block is left out; ``keep``: it has a hash, which no longer
               prompt has. LMCache calls this save_unfull_chunk: off by default in its configuration, on
               where a token database is built without one.

        >>> hasher = BlockHasher("lmcache-sha256-cbor,seed=0", block_tokens=16)
        >>> [(start, end, f"{digest:x}") for start, end, digest in hasher.blocks(range(20))]
        [(0, 16, '7913e9343b88bdf9')]
    """

    def __init__(
        self,
        hashing: ChainHash | PartChoice = "blake3",
        *,
        block_tokens: int = USUAL_BLOCK_TOKENS,
        tails: Tails = "drop",
        rules: Rules = "strict",
    ) -> None:
        super().__init__(hashing, rules=rules)
        size = whole_number(block_tokens)
        if size is None or size < 1:
            raise ConfigError(f"block_tokens = {block_tokens!r} must be a whole number, at least 1")
        _check_choice("tails", tails, get_args(Tails))
        if tails == "keep" and self.hashing.lookahead:
            raise ConfigError(f"tails = keep has no effect with a lookahead of {self.hashing.lookahead} tokens")
        self.block_tokens = size
        self.tails = tails

    def blocks(
        self,
        tokens: TokenSource | None = None,
        *,
        hashes: Hashes | None = None,
        offsets: Offsets | None = None,
        mask: Mask | None = None,
        parent: Digest | None = None,
        start: int = 0,
        end: int | None = None,
        extras: Sequence[Extra] | None = None,
    ) -> HashedBlocks:
        """As in :class:`PromptHasher`; and

        ``start``   the first token whose block is asked for; must be where a block starts. With
                    ``parent``, which is then the digest of the block that ends there, the chain is
                    resumed; without, it is hashed from the first token on.
        ``end``     the token before which the prompt ends; None: at its end.
        ``extras``  the extra keys of each block from the first one that is hashed, a partial one included.
        """
        if tokens is None:
            if parent is not None or start or end is not None or extras is not None:
                raise ArgumentError("parent, start, end and extras have no effect on ready hashes")
            return self.given(hashes, offsets, mask)
        if hashes is not None or offsets is not None:
            raise ArgumentError("give tokens, or hashes and offsets, not both")
        array = token_array(tokens)
        skipped = self.skipped(mask, len(array))
        last = self._end(start, end, len(array))
        first = self._aligned(start, "start") if parent is not None else 0
        digests = self.hashing.chain_blocks(
            self.hashing.root if parent is None else parent, array[first:last], self.block_tokens, extras
        )
        if self.tails == "drop":
            del digests[self.hashing.hashable(last - first, self.block_tokens) :]
        starts = first + self.block_tokens * np.arange(len(digests), dtype=np.int64)
        ends = np.minimum(starts + self.block_tokens, last)
        found = HashedBlocks(starts, ends, digests, self.hashing.keys(digests))
        return found.since(max(skipped, self._aligned(start, "start")))

    def skipped(self, mask: Mask | None, length: int, ends: Int64s | None = None) -> int:
        falses = super().skipped(mask, length, ends)
        return falses if ends is not None else self._aligned(falses, "the number of Falses of the mask")

    def _aligned(self, token: int, what: str) -> int:
        if token % self.block_tokens:
            raise ArgumentError(f"{what} is {token}, not a multiple of the block size of {self.block_tokens} tokens")
        return token

    def _end(self, start: int, end: int | None, length: int) -> int:
        last = length if end is None else end
        if not 0 <= start <= last <= length:
            raise ArgumentError(f"start = {start} and end = {last} are not in order within {length} tokens")
        return last


class SegmentHasher(PromptHasher):
    """What is between separators, each segment hashed alone and in one piece, as LMCache does for
    blending; so a segment has the same hash wherever it stands.

    ``separator``  its token ids. Separators belong to no segment.

    Empty segments (a separator at an end, or two side by side) are left out; ``rules="lmcache"`` has
    them. A segment is in front of a mask's Trues by its first token; it needs no alignment.
    """

    def __init__(
        self, hashing: ChainHash | PartChoice = "blake3", *, separator: TokenSource, rules: Rules = "strict"
    ) -> None:
        super().__init__(hashing, rules=rules)
        if self.hashing.lookahead:
            raise ConfigError(f"a lookahead of {self.hashing.lookahead} has no effect: segments are hashed alone")
        self.separator = check_separator(separator)

    def blocks(
        self,
        tokens: TokenSource | None = None,
        *,
        hashes: Hashes | None = None,
        offsets: Offsets | None = None,
        mask: Mask | None = None,
        parent: Digest | None = None,
    ) -> HashedBlocks:
        if tokens is None:
            if parent is not None:
                raise ArgumentError("parent has no effect on ready hashes")
            return self.given(hashes, offsets, mask)
        if hashes is not None or offsets is not None:
            raise ArgumentError("give tokens, or hashes and offsets, not both")
        array = token_array(tokens)
        skipped = self.skipped(mask, len(array))
        root = self.hashing.root if parent is None else parent
        spans = segments(array, self.separator)
        if self.rules == "strict":
            spans = [(start, end) for start, end in spans if start < end]
        elif len(array) < len(self.separator):
            raise ArgumentError(f"a prompt of {len(array)} tokens is shorter than the separator")
        elif skipped >= len(array):
            raise ArgumentError(f"the mask leaves out all of the {len(array)} tokens")
        spans = [(start, end) for start, end in spans if start >= skipped]
        digests = [self.hashing.chain(root, array[start:end]) for start, end in spans]
        bounds = np.array(spans, np.int64).reshape(-1, 2)
        return HashedBlocks(bounds[:, 0], bounds[:, 1], digests, self.hashing.keys(digests))


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"{name} = {value!r} is not one of {', '.join(choices)}")
