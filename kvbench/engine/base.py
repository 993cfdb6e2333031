"""What is behind the calls of a cache engine: its settings, its chunks, its leases."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from kvbench.engine.answers import Operation, Retrieved
from kvbench.engine.chunks import Chunks, Part
from kvbench.engine.costs import EngineCosts, Meter, add_phases
from kvbench.engine.metadata import EngineMetadata
from kvbench.engine.pool import EnginePool, Hold, Lease
from kvbench.engine.stats import EngineStats
from kvbench.errors import ArgumentError, ConfigError
from kvbench.plugins import did_you_mean
from kvbench.results.hitrates import TokenSums
from kvbench.tokens.arrays import token_array, whole_number
from kvbench.tokens.hashers import USUAL_BLOCK_TOKENS, BlockHasher, SegmentHasher
from kvbench.units import MAX_TOKENS, NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Self

    from kvbench.config import Tails
    from kvbench.engine.chunks import Keys
    from kvbench.plugins import Registry
    from kvbench.tierconfig import PartChoice
    from kvbench.tokens.arrays import TokenSource
    from kvbench.tokens.hashes.base import ChainHash, Digest
    from kvbench.tokens.masks import Mask, Rules

PIN_TIMEOUT_S = 300.0
"""LMCache's pin_timeout."""
ROUNDINGS = ("down", "up")


@dataclass(slots=True)
class Call:
    """A call under way: its number, and why it does nothing, or empty."""

    number: int
    reason: str = ""


class EngineBase:
    """Base of :class:`kvbench.engine.CacheEngine`, which says what the arguments are."""

    def __init__(
        self,
        metadata: EngineMetadata | None = None,
        *,
        hashing: ChainHash | PartChoice = "blake3",
        chunk_tokens: int = USUAL_BLOCK_TOKENS,
        tails: Tails = "drop",
        separator: TokenSource | None = None,
        rules: Rules = "strict",
        round_fetch: Literal["down", "up"] = "down",
        store_tiers: Sequence[str] | None = None,
        retrieve_tiers: Sequence[str] | None = None,
        remove_after_retrieve: bool = False,
        wait_for_room: bool = False,
        pin_timeout_s: float | None = None,
        clock: Callable[[], int] | None = None,
        costs: EngineCosts | None = None,
        observer: Callable[[Operation], None] | None = None,
        keep_events: bool = False,
        registry: Registry | None = None,
        **settings: Any,
    ) -> None:
        self.metadata = EngineMetadata() if metadata is None else metadata
        if not 1 <= (whole_number(chunk_tokens) or 0) <= MAX_TOKENS:
            raise ConfigError(f"chunk_tokens = {chunk_tokens!r} must be a whole number from 1 to {MAX_TOKENS:,}")
        if round_fetch not in ROUNDINGS:
            raise ConfigError(f"round_fetch = {round_fetch!r} is not one of {', '.join(ROUNDINGS)}")
        if pin_timeout_s is not None and clock is None:
            raise ConfigError(f"pin_timeout_s = {pin_timeout_s} has no effect without a clock: time stands still")
        if pin_timeout_s is not None and not pin_timeout_s > 0:
            raise ConfigError(f"pin_timeout_s = {pin_timeout_s:g} must be above 0")
        if separator is None:
            self.hasher: BlockHasher | SegmentHasher = BlockHasher(
                hashing, block_tokens=chunk_tokens, tails=tails, rules=rules
            )
        else:
            if tails != "drop":
                raise ConfigError(
                    "tails = keep has no effect with a separator: a segment is one chunk, whatever its size"
                )
            self.hasher = SegmentHasher(hashing, separator=separator, rules=rules)
        self.chunk_tokens = chunk_tokens
        self.round_fetch = round_fetch
        self.remove_after_retrieve = remove_after_retrieve
        self.wait_for_room = wait_for_room
        self._timeout_ns = None if clock is None else round((pin_timeout_s or PIN_TIMEOUT_S) * NS_PER_S)
        self._costs = EngineCosts() if costs is None else costs
        self._observer = observer
        self._pool = EnginePool(
            settings, chunk_tokens=chunk_tokens, clock=clock, registry=registry, keep_events=keep_events
        )
        self._store_tiers, self._retrieve_tiers = store_tiers, retrieve_tiers
        self._join(0)

    def _join(self, worker: int) -> None:
        """Take a place at the pool."""
        self.worker = worker
        self.stats = EngineStats()
        self._stack = self._pool.stack(worker)
        self._number = len(self._pool.stats)
        self._pool.stats.append(self.stats)
        self._closed_levels = self._others(self._store_tiers, "store_tiers")
        self._hidden_levels = self._others(self._retrieve_tiers, "retrieve_tiers")
        writing = [level for level, tier in enumerate(self._pool.core.tiers) if tier.write in ("through", "spill")]
        if self._store_tiers is not None and set(writing) <= set(self._closed_levels):
            raise ConfigError(f"store_tiers = {list(self._store_tiers)}: none of them takes computed chunks")
        self._frozen = False
        self._fault = ""
        self._pins: dict[bytes, list[object]] = {}
        self._is_closed = False

    def peer(self, metadata: EngineMetadata | None = None, *, worker: int | None = None, **changes: Any) -> Self:
        """Another engine over the same tiers, with the settings of this one.

        ``metadata`` is its own, or this one's with ``changes``. ``worker`` says which stores of tiers
        that workers do not share are its own; None: this one's. It starts healthy, with nothing counted.
        """
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        made.metadata = replace(self.metadata if metadata is None else metadata, **changes)
        made._join(self.worker if worker is None else worker)
        return made

    # -- a call --------------------------------------------------------------------------------

    @contextmanager
    def _operation(self, kind: str) -> Iterator[Call]:
        """One call: leases that ran out end before it, and its observer hears of both its ends."""
        if self._is_closed:
            raise ArgumentError(f"{kind}: the engine is closed")
        self._pool.expire()
        call = Call(self._pool.operations)
        self._pool.operations += 1
        self._take_stack()
        self._tell(Operation(call.number, kind, "start", self._pool.clock()))
        try:
            yield call
        finally:
            self._tell(Operation(call.number, kind, "finish", self._pool.clock(), call.reason))

    def _take_stack(self) -> None:
        """Have the worker's stack, which other engines may use, do as this engine is set."""
        self._stack.freeze(self._frozen)
        self._stack.restrict(hidden=self._hidden_levels, closed=self._closed_levels)

    def _tell(self, operation: Operation) -> None:
        if self._observer is not None:
            self._observer(operation)

    def _degraded(self, call: Call) -> bool:
        """Whether an unhealthy engine answers with nothing."""
        call.reason = self._fault
        self.stats.degraded_operations += bool(call.reason)
        return bool(call.reason)

    def _chunks(
        self,
        tokens: TokenSource | None,
        hashes: Sequence[Digest] | None,
        offsets: Sequence[int] | None,
        mask: Mask | None,
        tags: Mapping[str, str] | None,
    ) -> tuple[Chunks, int]:
        """The chunks of a prompt, and how many of them its mask leaves out."""
        if tokens is not None:
            tokens = token_array(tokens)
        blocks = self.hasher.blocks(tokens, hashes=hashes, offsets=offsets)
        length = len(tokens) if tokens is not None else int(blocks.ends[-1]) if len(blocks) else 0
        chunks = Chunks.of(blocks, length, 0 if tokens is None else length, self.metadata.word(tags))
        falses = self.hasher.skipped(mask, length, blocks.ends if tokens is None else None)
        return chunks, len(blocks) - len(blocks.since(falses))

    # -- what a call does ----------------------------------------------------------------------

    def _find(self, call: Call, chunks: Chunks, first: int, name: object | None, *, lasting: bool = False) -> int:
        """How many leading chunks the tiers have, those before ``first`` taken for known; with a ``name``
        they are leased under it, for good if ``lasting``."""
        part = chunks.part(first)
        hit = self._stack.probe(part.keys, skip=part.skip, request=call.number, time_ns=self._pool.clock())
        if name is not None:
            self._lease(name, self._pool.hold(self.worker, part.keys, part.skip, self._stack.last_credit), lasting)
            self._stack.touch_found()
        return part.reach(hit)

    def _lease(self, name: object, holds: tuple[Hold, ...], lasting: bool) -> None:
        timeout = None if lasting else self._timeout_ns
        deadline = None if timeout is None else self._pool.clock() + timeout
        self._pool.leases[self._number, name] = Lease(holds, deadline)

    def _fetch(self, call: Call, chunks: Chunks, first: int, limit: int, found: Retrieved) -> int:
        """Fetch chunks ``first`` to ``limit - 1`` as far as they are there, and note what came from where;
        returns the chunk before which what was used, or given back, ends."""
        part = chunks.part(first)
        meter = Meter(self._costs, self._pool, self.worker)
        hit = self._stack.fetch_only(
            part.keys, skip=part.skip, limit=part.span(limit), request=call.number, time_ns=self._pool.clock()
        )
        credit = self._stack.last_credit
        stop = min(limit, part.reach(hit))
        names = self._pool.tier_names
        for at in range(first, stop):
            start, end = int(chunks.starts[at]), int(chunks.ends[at])
            found.mask[start:end] = True
            found.tier_tokens[names[credit[part.position[at - first]]]] += end - start
        claimed = min(limit, part.reach(hit + self._stack.lost))
        self.stats.wasted_tokens += chunks.tokens_of(stop, claimed)
        self.stats.wasted_bytes = self._plus(self.stats.wasted_bytes, self._stack.lost)
        self.stats.overlap_tokens += self._stack.overlap * self.chunk_tokens
        phases = meter.fetch_phases(self._plus(0, max(0, hit - part.skip)))
        self.stats.fetch_phase_ns = add_phases(self.stats.fetch_phase_ns, phases)
        self._add(TokenSums(asked=chunks.tokens_of(first, limit), delivered=int(found.mask.sum())))
        return max(claimed, stop)

    def _store(self, call: Call, chunks: Chunks, first: int, *, again: bool = False) -> int:
        """Store chunks from ``first`` on, ``again`` if their keys were made before; returns how many of their
        tokens are new to some tier."""
        part = chunks.part(first)
        meter = Meter(self._costs, self._pool, self.worker)
        refused = self._pool.refused(self.worker) if self.wait_for_room else 0
        new = self._stack.store_only(part.keys, skip=part.skip, request=call.number, time_ns=self._pool.clock())
        tokens = part.tokens_of(new)
        self.stats.stored_tokens += tokens
        self.stats.stored_bytes = self._plus(self.stats.stored_bytes, len(new))
        phases = meter.store_phases(0 if again else chunks.hashed, self._plus(0, len(new)))
        self.stats.store_phase_ns = add_phases(self.stats.store_phase_ns, phases)
        if self.wait_for_room and self._pool.references() and self._pool.refused(self.worker) > refused:
            self._wait(chunks, part)
        return tokens

    def _release(self, call: Call, *names: object) -> bool:
        """End leases, and store what waited for that; whether any was there."""
        released = [self._pool.release((self._number, name)) for name in names]
        self._store_waiting(call)
        return any(released)

    # -- stores that wait ----------------------------------------------------------------------

    def _wait(self, chunks: Chunks, part: Part) -> None:
        """Store from the first chunk that no tier has once something is released."""
        held = self._pool.holders(self.worker, part.keys)
        missing = [at for at in range(part.skip, len(held)) if not held[at]]
        if missing:
            self._pool.waiting.append((self, chunks, part.reach(missing[0])))

    def _store_waiting(self, call: Call) -> None:
        """Something was released: try to store what waits, of all engines that may store."""
        waiting, self._pool.waiting = self._pool.waiting, []
        for engine, chunks, first in waiting:
            if engine._fault or engine._frozen:
                self._pool.waiting.append((engine, chunks, first))
                continue
            engine._take_stack()
            engine._store(call, chunks, first, again=True)
        if waiting:
            self._take_stack()

    def _give_up_waiting(self, keys: Keys) -> None:
        """What is removed is not stored later."""
        gone = set(keys.tolist())
        self._pool.waiting = [
            entry for entry in self._pool.waiting if entry[0] is not self or gone.isdisjoint(entry[1].keys.tolist())
        ]

    # -- counts --------------------------------------------------------------------------------

    def _count_lookup(self, chunks: Chunks, hit: int, device: int, found: int) -> None:
        """Count a lookup that found ``hit`` chunks, ``found`` tokens; ``device`` tokens were there already."""
        segments = isinstance(self.hasher, SegmentHasher)
        prompt, size = chunks.tokens, self.chunk_tokens
        self._add(
            TokenSums(
                prompt=prompt,
                aligned=chunks.tokens_of(0, len(chunks)) if segments else prompt - prompt % size,
                device=device,
                lookup=found,
                chunked=0 if not found else chunks.tokens_of(0, hit) if segments else found - found % size,
                external=max(0, found - device),
            )
        )

    def _add(self, sums: TokenSums) -> None:
        self.stats.sums = self.stats.sums.plus(sums)

    def _plus(self, total: int | None, blocks: int) -> int | None:
        """A sum of bytes and the bytes of so many chunks."""
        return None if total is None or self._pool.block_bytes is None else total + blocks * self._pool.block_bytes

    def _limit(self, chunks: Chunks, max_fetch: int | None) -> int:
        """How many leading chunks ``max_fetch`` tokens allow."""
        if max_fetch is None:
            return len(chunks)
        limit = whole_number(max_fetch)
        if limit is None or limit < 0:
            raise ArgumentError(f"max_fetch = {max_fetch} must be a whole number, not negative")
        if self.round_fetch == "down":
            return chunks.ending_by(limit)
        return int(np.searchsorted(chunks.starts, limit))

    def _others(self, names: Sequence[str] | None, setting: str) -> tuple[int, ...]:
        """The levels that are not among the named tiers; none if all are meant."""
        if names is None:
            return ()
        if isinstance(names, str):
            raise ConfigError(f"{setting} = {names!r} is one text; give a list of names, as in [{names!r}]")
        for name in names:
            if name not in self._pool.tier_names:
                raise ConfigError(f"{setting}: no tier is called {name!r}; {did_you_mean(name, self._pool.tier_names)}")
        chosen = {self._level(name) for name in names}
        return tuple(level for level in range(len(self._pool.tier_names)) if level not in chosen)

    def _level(self, tier: str) -> int:
        if tier not in self._pool.tier_names:
            raise ArgumentError(f"no tier is called {tier!r}; {did_you_mean(tier, self._pool.tier_names)}")
        return self._pool.tier_names.index(tier)
