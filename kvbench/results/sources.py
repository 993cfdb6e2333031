"""Where hits come from: an opening that many share, the same session, or another.

Memory: up to 60 bytes a distinct block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kvbench.results.carry import Latest, Names, grown
from kvbench.results.rates import ratio

if TYPE_CHECKING:
    import numpy.typing as npt

    from kvbench.results.columns import RequestColumns

    Int64s = npt.NDArray[np.int64]

NOBODY = -2
OPENING_SHARE = 0.01
OPENING = (
    f"of an opening that at least {OPENING_SHARE:.0%} of the requests have, of several sessions where these are known"
)
KINDS = {
    "same_session": "last used by the same session",
    "other_session": "last used by another session",
    "other_tenant": "last used by another tenant",
    "no_session": "of a request whose session is not known, or last used by one",
}
SOURCES = {"opening": OPENING} | KINDS
"""Each block that hits is of one source, the first of these that is so."""


class HitSources:
    """Sorts the hits of a cache that holds everything by who used the block last."""

    def __init__(self, block_tokens: int | None) -> None:
        self._block_tokens = block_tokens or 0
        self._session, self._tenant = Latest(NOBODY), Latest(NOBODY)
        self._tenants = Names()
        self._requests = 0
        self._knows_sessions = False
        self._uses = np.zeros(0, np.int64)
        self._shared = np.zeros(0, np.bool_)
        self._blocks = [np.zeros(0, np.int32) for _ in KINDS]
        self._tokens = [np.zeros(0, np.int64) for _ in KINDS]

    def add(self, columns: RequestColumns, sessions: Int64s | None, ids: Int64s) -> None:
        """Take in a batch; ``ids`` number its blocks, row after row, ``sessions`` its rows' sessions (-1: none)."""
        blocks = columns.blocks
        self._requests += len(blocks)
        if len(ids) == 0:
            return
        self._grow(int(ids.max()) + 1)
        self._uses += np.bincount(ids, minlength=len(self._uses))
        place = np.arange(len(ids)) - np.repeat(np.cumsum(blocks) - blocks, blocks)
        hit = place < np.repeat(columns.infinite_hit_blocks, blocks)
        left = np.repeat(columns.input_tokens, blocks) - place * self._block_tokens
        tokens = np.clip(left, 0, self._block_tokens)
        kind = self._kinds(columns, sessions, ids)
        for at, (count, sums) in enumerate(zip(self._blocks, self._tokens, strict=True)):
            of_kind = hit & (kind == at)
            np.add.at(count, ids[of_kind], 1)
            np.add.at(sums, ids[of_kind], tokens[of_kind])

    def _kinds(self, columns: RequestColumns, sessions: Int64s | None, ids: Int64s) -> Int64s:
        """For each block the place in KINDS of its last use before."""
        names, blocks = list(KINDS), columns.blocks
        kind = np.full(len(ids), names.index("no_session"))
        if sessions is not None:
            self._knows_sessions = True
            owner = np.repeat(sessions, blocks)
            last = self._session.before(ids, owner)
            known = (owner >= 0) & (last >= 0)
            kind[known] = np.where(last == owner, names.index("same_session"), names.index("other_session"))[known]
            self._shared[ids[known & (last != owner)]] = True
        if "tenant" in columns.batch.schema.names:
            tenant = np.repeat(self._tenants.of(columns.batch.column("tenant")), blocks)
            last = self._tenant.before(ids, tenant)
            kind[(last != NOBODY) & (last != tenant)] = names.index("other_tenant")
        return kind

    def _grow(self, wanted: int) -> None:
        self._uses = grown(self._uses, wanted, 0)
        self._shared = grown(self._shared, wanted, 0)
        self._blocks = [grown(each, wanted, 0) for each in self._blocks]
        self._tokens = [grown(each, wanted, 0) for each in self._tokens]

    def summary(self) -> list[dict[str, Any]]:
        """A row a source in the order of SOURCES: hits in blocks and tokens, and their share of all hit tokens."""
        opening = self._uses >= max(OPENING_SHARE * self._requests, 2)
        if self._knows_sessions:
            opening &= self._shared
        rows = [("opening", [opening] * len(KINDS), self._blocks, self._tokens)]
        rows += [(name, [~opening], [self._blocks[at]], [self._tokens[at]]) for at, name in enumerate(KINDS)]
        total = sum(int(each.sum()) for each in self._tokens)
        found = []
        for name, masks, blocks, tokens in rows:
            hit_tokens = sum(int(each[mask].sum()) for mask, each in zip(masks, tokens, strict=True))
            found.append(
                {
                    "source": name,
                    "hit_blocks": sum(int(each[mask].sum()) for mask, each in zip(masks, blocks, strict=True)),
                    "hit_tokens": hit_tokens,
                    "hit_tokens_share": ratio(hit_tokens, total),
                }
            )
        return found

    def sessions(self) -> dict[str, Any]:
        """Blocks that hit, by whose last use they were, openings among them."""
        by_kind = dict(zip(KINDS, (int(each.sum()) for each in self._blocks), strict=True))
        same, total = by_kind["same_session"], sum(by_kind.values())
        return {
            "same_session": same,
            "other_session": total - same,
            "same_session_share": ratio(same, total),
            "other_session_share": ratio(total - same, total),
        }
