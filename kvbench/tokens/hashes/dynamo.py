"""Dynamo's router (ai-dynamo/dynamo lib/kv-router): XXH3-64 with the seed 1337.

A block's *local* hash is that of its tokens as little-endian 32-bit integers, whatever stands
before them; the hashes of its images follow, sorted, as 64-bit integers. A *sequence* hash is the
first block's local hash, then the hash of (sequence hash before, local hash), both little-endian
64-bit integers. The digest and key of a block is its sequence hash.

An adapter or a cache namespace is added to the seed of local hashes: XXH3-64 of its name, with
seed 0 or 1. With a lookahead (EAGLE) the window of a block has the next token, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import xxhash

from kvbench.errors import ArgumentError
from kvbench.tokens.hashes.lmcache import IntHash

if TYPE_CHECKING:
    from kvbench.tokens.arrays import Tokens
    from kvbench.tokens.hashes.base import Digest, Extra

SEED = 1337
MASK = 2**64 - 1


class DynamoHash(IntHash):
    """``adapter`` and ``namespace`` are those of the requests; ``lookahead`` is 0, or 1 with EAGLE.

    Extra keys are the hashes of a block's images, integers below 2⁶⁴.
    """

    takes_extras: ClassVar[bool] = True

    def __init__(self, *, adapter: str = "", namespace: str = "", lookahead: int = 0) -> None:
        self.lookahead = lookahead
        self._seed = SEED
        for name, seed in ((adapter, 0), (namespace, 1)):
            if name:
                self._seed = (self._seed + xxhash.xxh3_64_intdigest(name.encode(), seed)) & MASK

    @property
    def root(self) -> None:
        return None

    def chain(self, parent: Digest | None, tokens: Tokens, extra: Extra = None, ahead: Tokens | None = None) -> int:
        local = self.local(tokens, extra, ahead)
        if parent is None:
            return local
        pair = self.check(parent).to_bytes(8, "little") + local.to_bytes(8, "little")
        return xxhash.xxh3_64_intdigest(pair, SEED)

    def local(self, tokens: Tokens, extra: Extra = None, ahead: Tokens | None = None) -> int:
        """The local hash of a block."""
        data = tokens.astype("<u4", copy=False).tobytes()
        if self.lookahead and ahead is not None:
            data += ahead.astype("<u4", copy=False).tobytes()
        images = [_check_image(image) for image in extra or ()]
        data += b"".join(image.to_bytes(8, "little") for image in sorted(images))
        return xxhash.xxh3_64_intdigest(data, self._seed)


def _check_image(image: object) -> int:
    if not isinstance(image, int) or not 0 <= image <= MASK:
        raise ArgumentError(f"image hash {image!r} is not an integer from 0 to {MASK}")
    return image
