"""Sums over a replay's rows, added up batch by batch: everything a summary is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from kvbench.replays.order import COUNTS
from kvbench.results.hitrates import TokenSums
from kvbench.results.rates import ratio

if TYPE_CHECKING:
    import numpy.typing as npt

    from kvbench.results.columns import RequestColumns

    Int64s = npt.NDArray[np.int64]


@dataclass(slots=True)
class HitSums:
    """What the rates of one kind of hit (delivered, or the infinite bound) are made of."""

    blocks: int = 0
    full_blocks: int = 0
    tokens: int = 0
    ratio_sum: float = 0.0
    token_ratio_sum: float = 0.0
    requests: int = 0

    def add(self, hit: Int64s, columns: RequestColumns) -> None:
        """Add the hits (in blocks) of a batch."""
        tokens = columns.tokens_of(hit)
        asked = columns.blocks > 0
        self.blocks += int(hit.sum())
        self.full_blocks += int(np.minimum(hit, columns.full_blocks).sum())
        self.tokens += int(tokens.sum())
        self.ratio_sum += float((hit[asked] / columns.blocks[asked]).sum())
        self.token_ratio_sum += float((tokens / columns.input_tokens).sum())
        self.requests += int((hit > 0).sum())


@dataclass(slots=True)
class RoutingSums:
    """Tokens over all requests (semantics §8.4): the longest prefix ``best`` anywhere, what the index ``predicted``
    at the chosen worker, and what was delivered; of their differences ``routed_away``, ``stale`` (predicted and
    not delivered) and ``unforeseen`` (delivered and not predicted)."""

    best: int = 0
    predicted: int = 0
    delivered: int = 0
    routed_away: int = 0
    stale: int = 0
    unforeseen: int = 0

    def add(self, best: Int64s, predicted: Int64s, delivered: Int64s) -> None:
        """Add the tokens of a batch."""
        self.best += int(best.sum())
        self.predicted += int(predicted.sum())
        self.delivered += int(delivered.sum())
        self.routed_away += int(np.maximum(best - delivered, 0).sum())
        self.stale += int(np.maximum(predicted - delivered, 0).sum())
        self.unforeseen += int(np.maximum(delivered - predicted, 0).sum())


@dataclass(slots=True)
class Totals:
    """Sums over all rows so far.

    ``counts``  sum of each of the core's counts that adds up, by name.
    ``serving``  what the rates of serving systems are made of, for a stack of several tiers.
    ``worker_requests``, ``worker_input_tokens``, ``worker_hit_tokens``, ``worker_predicted_tokens``  int64, one
    a worker.
    """

    workers: int
    requests: int = 0
    requests_with_blocks: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    full_blocks: int = 0
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS[1:], 0))
    hits: HitSums = field(default_factory=HitSums)
    infinite: HitSums = field(default_factory=HitSums)
    belady: HitSums = field(default_factory=HitSums)
    serving: TokenSums = field(default_factory=TokenSums)
    routing: RoutingSums = field(default_factory=RoutingSums)
    _first_ns: int | None = None
    _last_ns: int | None = None
    worker_requests: Int64s = field(init=False)
    worker_input_tokens: Int64s = field(init=False)
    worker_hit_tokens: Int64s = field(init=False)
    worker_predicted_tokens: Int64s = field(init=False)

    def __post_init__(self) -> None:
        self.worker_requests = np.zeros(self.workers, np.int64)
        self.worker_input_tokens = np.zeros(self.workers, np.int64)
        self.worker_hit_tokens = np.zeros(self.workers, np.int64)
        self.worker_predicted_tokens = np.zeros(self.workers, np.int64)

    def add(self, columns: RequestColumns) -> None:
        """Add a batch."""
        counts = columns.counts
        self.requests += len(columns.input_tokens)
        self.requests_with_blocks += int((columns.blocks > 0).sum())
        self.input_tokens += int(columns.input_tokens.sum())
        self.output_tokens += int(columns.output_tokens.sum())
        self.full_blocks += int(columns.full_blocks.sum())
        # One sum over the whole block of rows: column by column it takes four times as long.
        for name, value in zip(COUNTS, columns.rows.sum(axis=0, dtype=np.int64).tolist(), strict=True):
            if name in self.counts:
                self.counts[name] += value
        recomputed = int(counts["miss_recomputed_blocks"].sum(dtype=np.int64))
        self.counts["miss_recomputed_blocks"] = self.counts.get("miss_recomputed_blocks", 0) + recomputed
        self.counts["miss_gap_blocks"] -= recomputed
        self.pass_time(columns.arrival_ns)
        if columns.tier_names:
            for name in columns.tier_names:
                self.counts[name] = self.counts.get(name, 0) + int(columns.counts[name].sum(dtype=np.int64))
            self.serving = self.serving.plus(_token_sums(columns))
        self.hits.add(columns.hit_blocks, columns)
        self.infinite.add(columns.infinite_hit_blocks, columns)
        if columns.belady_hit_blocks is not None:
            self.belady.add(columns.belady_hit_blocks, columns)
        worker = counts["worker"]
        hit = columns.tokens_of(columns.hit_blocks)
        sums = [
            (self.worker_requests, None),
            (self.worker_input_tokens, columns.input_tokens),
            (self.worker_hit_tokens, hit),
        ]
        if self.workers > 1:
            predicted = columns.routed_tokens("predicted_blocks")
            self.routing.add(columns.routed_tokens("best_blocks"), predicted, hit)
            sums.append((self.worker_predicted_tokens, predicted))
        for into, values in sums:
            # Weights are summed as float64, which is exact for whole numbers below 2^53.
            into += np.bincount(worker, weights=values, minlength=self.workers).astype(np.int64)

    def pass_time(self, arrival_ns: Int64s) -> None:
        """Note that requests arrived, whether they are added or not."""
        if len(arrival_ns):
            first, last = int(arrival_ns.min()), int(arrival_ns.max())
            self._first_ns = first if self._first_ns is None else min(first, self._first_ns)
            self._last_ns = last if self._last_ns is None else max(last, self._last_ns)

    @property
    def duration_ns(self) -> int | None:
        """From the first arrival to the last; None without requests, and where all arrive at once."""
        if self._first_ns is None or self._last_ns is None:
            return None
        return self._last_ns - self._first_ns or None

    @property
    def partial_blocks(self) -> int:
        """Partial last blocks that may not be stored."""
        return self.counts["blocks"] - self.counts["cacheable_blocks"]

    def rates(self, hits: HitSums, *, known: bool) -> dict[str, float | None]:
        """All named rates of ``hits``; all None unless ``known``."""
        blocks = self.counts["blocks"]
        values = {
            "token": ratio(hits.tokens, self.input_tokens),
            "block": ratio(hits.blocks, blocks),
            "full_block": ratio(hits.full_blocks, self.full_blocks),
            "request_mean": ratio(hits.ratio_sum, self.requests_with_blocks),
            "request_mean_token": ratio(hits.token_ratio_sum, self.requests),
            "request_any": ratio(hits.requests, self.requests),
            "block_any": ratio(self._found_anywhere(hits), blocks),
        }
        return values if known else dict.fromkeys(values)

    def _found_anywhere(self, hits: HitSums) -> int:
        """Blocks found wherever they stand. An infinite cache finds every cacheable block that was
        asked for before; the Belady bound counts prefixes, and of prefix ids there is nothing else
        to find."""
        if hits is self.hits:
            return self.counts["resident_blocks"]
        if hits is self.infinite:
            return self.counts["cacheable_blocks"] - self.counts["miss_first_seen_blocks"]
        return hits.blocks


def _token_sums(columns: RequestColumns) -> TokenSums:
    """The sums of a batch served by a stack: its first tier is the engine's own cache, those behind it are
    what a connector asks."""
    block_tokens = columns.block_tokens or 0
    device = columns.tokens_of(columns.counts[columns.tier_names[0]].astype(np.int64))
    lookup = columns.tokens_of(columns.counts["behind_blocks"].astype(np.int64))
    external = columns.tokens_of(columns.hit_blocks) - device
    lost = columns.counts["lost_blocks"].astype(np.int64) * block_tokens
    whole = columns.input_tokens - columns.input_tokens % max(block_tokens, 1)
    return TokenSums(
        prompt=int(columns.input_tokens.sum()),
        aligned=int(whole.sum()),
        device=int(device.sum()),
        lookup=int(lookup.sum()),
        chunked=int((lookup - lookup % max(block_tokens, 1)).sum()),
        external=int(external.sum()),
        asked=int((external + lost).sum()),
        delivered=int(external.sum()),
    )
