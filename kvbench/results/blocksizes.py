"""What other block sizes would hit, in one pass with a cache that holds everything.

What a request shares with those before it is a leading run of tokens. In whole base blocks of g tokens
that run is known; blocks of k g tokens hit as many of it as they fill: ⌊run / (k g)⌋ k g. That is exact for
every multiple of the base. Memory: about 30 bytes a distinct base block where the base is not the trace's own.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from kvbench.errors import ConfigError
from kvbench.results.rates import ratio
from kvbench.trace.rows import Interner

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from kvbench.replays.engine import Served
    from kvbench.replays.plan import Plan
    from kvbench.results.columns import RequestColumns
    from kvbench.trace.reader import Trace

    Int64s = npt.NDArray[np.int64]

TOKEN_SIZES = (16, 32, 64, 128, 256, 512, 1024)
MULTIPLES = (1, 2, 4, 8, 16)


class BlockSizes:
    """``sizes`` in tokens; by default those that are usual, or multiples of the trace's own.

    Raises ConfigError for sizes that a trace of block ids cannot tell.
    """

    def __init__(self, trace: Trace, plan: Plan, sizes: Sequence[int] | None) -> None:
        own = trace.facts.block_tokens
        self._database = None
        self._sizes: tuple[int, ...] = ()
        if sizes is not None and min(sizes) < 1:
            raise ConfigError(f"--block-sizes {min(sizes)}: a block has one token at least")
        if trace.ids == "token_ids" and plan.tokens is not None and plan.tokens.spec.name == "chained":
            self._sizes = tuple(sorted(set(TOKEN_SIZES if sizes is None else sizes)))
            self._base = math.gcd(*self._sizes)
            facts = dataclasses.replace(trace.facts, block_tokens=self._base)
            self._database = plan.tokens.make(facts, frozenset(trace.schema.names))
        elif trace.ids == "block_ids" and own is not None:
            self._base = own
            self._sizes = tuple(own * each for each in MULTIPLES) if sizes is None else tuple(sorted(set(sizes)))
            for size in self._sizes:
                if size % own:
                    raise ConfigError(
                        f"--block-sizes {size}: ids of {trace.name} stand for {own} tokens, and tell of multiples only"
                    )
        elif sizes is not None:
            raise ConfigError(f"--block-sizes has no effect on {trace.name}, which has no ids")
        self._seen = Interner()
        self._hit = np.zeros(len(self._sizes), np.int64)
        self._short = np.zeros(len(self._sizes), np.int64)
        self._input = 0

    def add(self, served: Served, columns: RequestColumns) -> None:
        """Take in one batch."""
        if not self._sizes:
            return
        if self._database is None:
            run = np.minimum(columns.infinite_hit_blocks, columns.input_tokens // self._base) * self._base
        else:
            run = self._run(served) * self._base
        self._input += int(columns.input_tokens.sum())
        for at, size in enumerate(self._sizes):
            hit = run // size * size
            self._hit[at] += int(hit.sum())
            self._short[at] += int(((run > 0) & (hit == 0)).sum())

    def _run(self, served: Served) -> Int64s:
        """Leading base blocks of each request that were seen before."""
        assert self._database is not None
        keys = self._database.keys(served.batch, keep_tails=False)
        known = len(self._seen)
        numbers = np.empty_like(keys.keys)
        self._seen.intern(keys.keys, numbers)
        # A number above all before it is that of a block that nobody had.
        highest = np.maximum.accumulate(np.concatenate([[known - 1], numbers.astype(np.int64)]))
        new = numbers.astype(np.int64) > highest[:-1]
        starts = keys.offsets[:-1]
        at = np.append(np.flatnonzero(new), len(new))
        first_new: Int64s = at[np.searchsorted(at, starts)]
        run: Int64s = np.minimum(first_new - starts, keys.cacheable)
        return run

    def summary(self) -> list[dict[str, Any]] | None:
        """A row a size; None where no size can be told."""
        if not self._sizes:
            return None
        return [
            {
                "block_tokens": size,
                "hit_tokens": int(hit),
                "token_rate": ratio(int(hit), self._input),
                "shorter_than_block_requests": int(short),
            }
            for size, hit, short in zip(self._sizes, self._hit, self._short, strict=True)
        ]
