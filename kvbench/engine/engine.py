"""The cache engine: store, look up and retrieve the chunks of prompts in a stack of tiers.

An engine is what one rank of a serving engine holds. Its calls are those of LMCache's engine and of
OPAL's cache manager; residency, order and bytes are those of the replay's own stacks, so that a
program that calls an engine and a replay of its calls agree in what hits. Hashes are those of the
algorithm alone, so that ready ones can stand for tokens; the namespace is mixed into the keys of the
tiers, which are therefore not those of a replay where there is one.

A fault of the cache never raises: it shows as an empty result, and in the counts. A wrong argument
raises :class:`kvbench.errors.ArgumentError`, a wrong setting :class:`kvbench.errors.ConfigError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kvbench.engine.answers import Retrieved, StoreResult
from kvbench.engine.base import EngineBase
from kvbench.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from kvbench.tokens.arrays import TokenSource
    from kvbench.tokens.cachekey import CacheKey
    from kvbench.tokens.hashes.base import Digest
    from kvbench.tokens.masks import Mask


class CacheEngine(EngineBase):
    """An engine over a stack of tiers.

        >>> engine = CacheEngine(tiers=["cpu,capacity=4", "disk,capacity=100"], chunk_tokens=4)
        >>> engine.store(range(10))
        StoreResult(requested_tokens=8, stored_tokens=8, reason='')
        >>> engine.lookup(range(10))
        8

    ``metadata``      what its KV bytes depend on beside the tokens.
    ``hashing``       hash algorithm, with its parameters.
    ``chunk_tokens``  tokens of a chunk.
    ``tails``         ``keep``: a partial last chunk is stored, too (LMCache: save_unfull_chunk). It takes
                      the room of a whole one.
    ``separator``     token ids that split a prompt into segments, each a chunk that is keyed alone.
    ``rules``         ``strict``, or ``lmcache``: masks and hash lists that LMCache would take.
    ``round_fetch``   whether ``max_fetch`` inside a chunk leaves the chunk out (``down``) or takes it (``up``).
    ``store_tiers``, ``retrieve_tiers``  names of the tiers that take computed chunks, and that lookups
                      see; None: all.
    ``remove_after_retrieve``  what a retrieve touched is gone afterwards (the receiver of disaggregated
                      prefill).
    ``wait_for_room`` what found no room for pinned chunks is tried again by the next store or release of any
                      engine, as long as something is pinned.
    ``pin_timeout_s`` when a lease ends by itself, on ``clock``: nanoseconds that never go back. None: after
                      five minutes, as in LMCache. Without a clock time stands still.
    ``costs``         what the phases of a store cost.
    ``observer``      is told of each operation's start and end.
    ``keep_events``   keep the event log, see :attr:`events`.
    ``settings``      of a run file: tiers, preset, placement, walk, workers, workers_per_host, tp, model,
                      models, kv_dtype, block_bytes, devices, seed; and retries, of the gets and puts that
                      ``inject`` lets fail. What a preset says of computing again is its caller's affair here.
    """

    # -- the three calls -----------------------------------------------------------------------

    def store(
        self,
        tokens: TokenSource | None = None,
        *,
        hashes: Sequence[Digest] | None = None,
        offsets: Sequence[int] | None = None,
        mask: Mask | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> StoreResult:
        """Store the chunks of a prompt whose KV was computed: those that fit, from the first on.

        ``tokens``; or ``hashes``, and with them ``offsets``, the number of tokens of each chunk.
        ``mask``  bool, one a token: the chunks of its leading Falses are left alone.
        ``tags``  of this request, beside those of the engine.
        """
        with self._operation("store") as call:
            chunks, first = self._chunks(tokens, hashes, offsets, mask, tags)
            requested = chunks.tokens_of(first, len(chunks))
            if self._degraded(call):
                return StoreResult(requested, 0, call.reason)
            if self.metadata.passive:
                call.reason = "passive"
                self.stats.passive_stores += 1
            elif self._frozen:
                call.reason = "frozen"
                self.stats.frozen_stores += 1
            if call.reason:
                return StoreResult(requested, 0, call.reason)
            self._store_waiting(call)
            self.stats.store_requests += 1
            self.stats.requested_store_tokens += requested
            return StoreResult(requested, self._store(call, chunks, first), "")

    def lookup(
        self,
        tokens: TokenSource | None = None,
        *,
        hashes: Sequence[Digest] | None = None,
        offsets: Sequence[int] | None = None,
        num_computed_tokens: int = 0,
        pin: bool = False,
        lookup_id: object = None,
        tags: Mapping[str, str] | None = None,
    ) -> int:
        """Up to which token the prompt's prefix is known. Moves nothing and changes no order.

        ``num_computed_tokens``  are known already: chunks that end at or before them are not looked for.
        ``pin``  what was found stays until it is retrieved, unpinned, or the time is over, under
                 ``lookup_id``; and it becomes the most recent of tiers with ``touch_on = lookup``.
        """
        with self._operation("lookup") as call:
            if pin == (lookup_id is None):
                raise ArgumentError("a lookup that pins has a lookup_id, and one that does not has none")
            self._check_free(lookup_id)
            chunks, _ = self._chunks(tokens, hashes, offsets, None, tags)
            computed = chunks.computed(num_computed_tokens)
            if self._degraded(call):
                return 0
            self.stats.lookup_requests += 1
            hit = self._find(call, chunks, computed, lookup_id)
            offset = int(chunks.ends[hit - 1]) if hit > computed else num_computed_tokens
            self._count_lookup(chunks, hit, num_computed_tokens, offset if hit > computed else 0)
            return offset

    def retrieve(
        self,
        tokens: TokenSource | None = None,
        *,
        hashes: Sequence[Digest] | None = None,
        offsets: Sequence[int] | None = None,
        mask: Mask | None = None,
        num_computed_tokens: int = 0,
        max_fetch: int | None = None,
        lookup_id: object = None,
        tags: Mapping[str, str] | None = None,
    ) -> Retrieved:
        """Fetch a prompt's prefix: chunk by chunk from the fastest tier that has it, up to the first that
        none has or that fails. What a tier below delivered is promoted as the tiers say.

        ``mask``, or ``num_computed_tokens``  what is there already: its chunks are not fetched.
        ``max_fetch``   tokens of the prompt behind which nothing is fetched.
        ``lookup_id``   of the lookup that promised it; its lease ends.
        """
        with self._operation("retrieve") as call:
            chunks, first = self._chunks(tokens, hashes, offsets, mask, tags)
            first = max(first, chunks.computed(num_computed_tokens))
            limit = self._limit(chunks, max_fetch)
            found = Retrieved(np.zeros(chunks.tokens, np.bool_), dict.fromkeys(self._pool.tier_names, 0))
            touched = first
            if not self._degraded(call):
                self.stats.retrieve_requests += 1
                touched = self._fetch(call, chunks, first, limit, found)
                if found.mask.any():
                    self.stats.overlap_tokens += max(0, num_computed_tokens - int(chunks.starts[first]))
                    self.stats.overlap_tokens += (
                        0 if max_fetch is None else int(np.count_nonzero(found.mask[max_fetch:]))
                    )
            if lookup_id is not None:
                self._release(call, lookup_id)
            if self.remove_after_retrieve and touched > first:
                self._pool.remove(self.worker, chunks.keys[:touched], first)
            return found

    # -- pins, removal -------------------------------------------------------------------------

    def lookup_unpin(self, lookup_id: object) -> bool:
        """End the lease of a lookup; False if it has none (any more)."""
        with self._operation("lookup_unpin") as call:
            return self._release(call, lookup_id)

    def pin(self, tokens: TokenSource, *, tags: Mapping[str, str] | None = None) -> int:
        """Keep the prefix that the tiers hold from being evicted; returns up to which token. Each pin needs
        an ``unpin``; none runs out."""
        with self._operation("pin") as call:
            chunks, _ = self._chunks(tokens, None, None, None, tags)
            name = object()
            self._pins.setdefault(chunks.keys.tobytes(), []).append(name)
            if self._degraded(call):
                self._lease(name, (), True)
                return 0
            hit = self._find(call, chunks, 0, name, lasting=True)
            return int(chunks.ends[hit - 1]) if hit else 0

    def unpin(self, tokens: TokenSource, *, tags: Mapping[str, str] | None = None) -> None:
        """Take back the youngest pin of a prompt. Raises ArgumentError if it has none."""
        with self._operation("unpin") as call:
            chunks, _ = self._chunks(tokens, None, None, None, tags)
            names = self._pins.get(chunks.keys.tobytes())
            if not names:
                raise ArgumentError(f"a prompt of {chunks.tokens} tokens is not pinned")
            self._release(call, names.pop())
            if not names:
                del self._pins[chunks.keys.tobytes()]

    def remove(self, tokens: TokenSource, *, tags: Mapping[str, str] | None = None) -> int:
        """Drop the chunks of a prompt from all tiers; returns how many tokens are gone. Pinned ones stay."""
        with self._operation("remove"):
            chunks, _ = self._chunks(tokens, None, None, None, tags)
            self._give_up_waiting(chunks.keys)
            part = chunks.part(0)
            return part.tokens_of(self._pool.remove(self.worker, part.keys))

    def clear(self) -> None:
        """Drop all chunks of all engines from the tiers that this one can reach. Pinned ones stay."""
        with self._operation("clear"):
            self._pool.waiting.clear()
            self._pool.clear(self.worker)

    # -- state ---------------------------------------------------------------------------------

    def freeze(self, frozen: bool = True) -> None:
        """Frozen, the engine stores nothing and reads from its fastest tier only."""
        self._frozen = frozen

    def unhealthy(self) -> None:
        """From now on stores, lookups, retrieves and pins give an empty result."""
        self._fault = self._fault or "unhealthy"

    def healthy(self) -> None:
        """Calls work again, unless the engine never came up."""
        if self._fault == "unhealthy":
            self._fault = ""

    def mark_init_failed(self) -> None:
        """The engine never came up, for good."""
        self._fault = "init_failed"

    @property
    def is_healthy(self) -> bool:
        """Whether calls do anything."""
        return not self._fault

    def inject(self, tier: str, *, unhealthy: bool = False, get_fails: float = 0.0, put_fails: float = 0.0) -> None:
        """Let a tier fail from now on, for all engines: it neither answers nor stores, or a share of its
        gets and puts fails (semantics §6.5)."""
        level = self._level(tier)
        for store in self._pool.core.stores[level]:
            store.set_faults(unhealthy=unhealthy, get_fails=get_fails, put_fails=put_fails)
        self._pool.get_fails[level] = get_fails
        for stack in self._pool.core.stacks:
            stack.expect_faults(any(self._pool.get_fails.values()))

    @property
    def references(self) -> int:
        """Pins on chunks of all tiers, of all engines."""
        return self._pool.references()

    @property
    def leased(self) -> int:
        """Pins that the leases of all engines account for: all that there are."""
        return self._pool.leased()

    @property
    def used_chunks(self) -> dict[str, int]:
        """Chunks that lie in each tier that this engine can reach; ranks are counted each."""
        stores = self._pool.stores(self.worker)
        return {
            name: sum(store.used for store in mine) for name, mine in zip(self._pool.tier_names, stores, strict=True)
        }

    @property
    def events(self) -> list[dict[str, Any]]:
        """The event log of all engines so far (semantics §7), where it is kept."""
        return self._pool.events()

    def locations(self, tokens: TokenSource, *, tags: Mapping[str, str] | None = None) -> list[tuple[str, ...]]:
        """For each chunk of a prompt the names of the tiers that hold it, fastest first; asks nobody else."""
        chunks, _ = self._chunks(tokens, None, None, None, tags)
        held = self._pool.holders(self.worker, chunks.keys)
        return [tuple(self._pool.tier_names[level] for level in levels) for levels in held]

    def keys(self, tokens: TokenSource, *, tags: Mapping[str, str] | None = None) -> list[CacheKey]:
        """The keys of a prompt's chunks in full."""
        return [self.metadata.key(digest, tags) for _, _, digest in self.hasher.blocks(tokens)]

    def _check_free(self, lookup_id: object) -> None:
        try:
            taken = (self._number, lookup_id) in self._pool.leases
        except TypeError:
            raise ArgumentError(f"lookup_id {lookup_id!r} cannot name a lease: it must be hashable") from None
        if taken:
            raise ArgumentError(f"lookup_id {lookup_id!r} holds a lease already")

    def close(self) -> None:
        """Release all leases of this engine and give up what it waits to store; it takes no more calls."""
        if self._is_closed:
            return
        with self._operation("close") as call:
            self._pool.waiting = [entry for entry in self._pool.waiting if entry[0] is not self]
            self._release(call, *[name for number, name in self._pool.leases if number == self._number])
        self._is_closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
