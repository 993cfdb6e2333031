"""Prompts that grow from texts which many of them share, as block ids or as token ids.

A *named* text is the same wherever the same names lead to it; a text that grows is nobody else's.

Token ids of a named text follow from the seed, the workload and its name alone, so a short one is the beginning of a
longer one. Nothing makes the texts of two names different but chance: single tokens, of 32,000, are often the same,
and whole blocks of 16 as good as never.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from kvbench.errors import ConfigError
from kvbench.trace.synth import stream
from kvbench.trace.synth.draw import token
from kvbench.units import MAX_TOKENS

if TYPE_CHECKING:
    import random

    Name = tuple[str | int, ...]


class Texts:
    """Makes the texts of one trace; ``ids`` is ``block`` or ``token``.

    Block ids are 0 … U-1 in first-seen order if a named text is asked for when the first prompt with it
    is written. Memory: the named texts, and those that the caller keeps.
    """

    def __init__(self, workload: str, seed: int, block_tokens: int, ids: str) -> None:
        self._start: Text = (
            _Blocks(_Counter(workload), block_tokens) if ids == "block" else _Tokens(_TokenSource(workload, seed))
        )
        self._named: dict[tuple[Name, ...], Text] = {}

    def named(self, *parts: tuple[Name, int]) -> Text:
        """The text that is made of ``parts``, each a name and its tokens; not to be grown, but forked."""
        text = self._start
        path: tuple[Name, ...] = ()
        for name, tokens in parts:
            path = (*path, name)
            if path not in self._named:
                text = text.fork()
                text.grow(tokens, name)
                self._named[path] = text
            text = self._named[path]
        return text


class Text(ABC):
    """Some tokens, by their ids."""

    tokens: int = 0

    @abstractmethod
    def fork(self) -> Text:
        """A text that starts with this one and can grow in another way."""

    @abstractmethod
    def grow(self, tokens: int, name: Name | None = None) -> None:
        """Add tokens of its own, or those of ``name``. Raises ConfigError for more than a prompt can have."""

    @abstractmethod
    def ids(self) -> list[int]:
        """Its block ids or token ids; the same ones until it grows."""


def _sum(workload: str, tokens: int, more: int) -> int:
    """``tokens`` and ``more``; raises ConfigError for what is too long for a prompt."""
    if tokens + more > MAX_TOKENS:
        raise ConfigError(
            f"workload {workload}: a prompt has {tokens + more:,} tokens, above {MAX_TOKENS:,}; lower the parameters "
            "of its length"
        )
    return tokens + more


class _Counter:
    def __init__(self, workload: str) -> None:
        self.workload = workload
        self.next = 0

    def fresh(self, count: int) -> range:
        self.next += count
        return range(self.next - count, self.next)


class _Blocks(Text):
    """A block belongs to the text that fills it. The partial last block has an id of its own, for what it
    becomes when the text grows has other content; a fork does not take it along."""

    def __init__(self, counter: _Counter, block_tokens: int) -> None:
        self._counter = counter
        self._block_tokens = block_tokens
        self._full: list[int] = []
        self._tail: list[int] = []

    def fork(self) -> _Blocks:
        self._settle()
        other = _Blocks(self._counter, self._block_tokens)
        other.tokens = self.tokens
        other._full = self._full.copy()
        return other

    def grow(self, tokens: int, name: Name | None = None) -> None:
        self.tokens = _sum(self._counter.workload, self.tokens, tokens)
        self._tail = []

    def ids(self) -> list[int]:
        self._settle()
        if self.tokens % self._block_tokens and not self._tail:
            self._tail = list(self._counter.fresh(1))
        return self._full + self._tail

    def _settle(self) -> None:
        """Give ids to the blocks that are full."""
        self._full += self._counter.fresh(self.tokens // self._block_tokens - len(self._full))


class _TokenSource:
    """Token ids by name, and streams for texts without one."""

    def __init__(self, workload: str, seed: int) -> None:
        self.workload = workload
        self._seed = seed
        self._streams = 0

    def new_stream(self) -> random.Random:
        self._streams += 1
        return stream(self._seed, self.workload, "text", self._streams)

    def named(self, name: Name, tokens: int) -> list[int]:
        rng = stream(self._seed, self.workload, "named", *name)
        return [token(rng) for _ in range(tokens)]


class _Tokens(Text):
    def __init__(self, source: _TokenSource) -> None:
        self._source = source
        self._ids: list[int] = []
        self._rng: random.Random | None = None

    def fork(self) -> _Tokens:
        other = _Tokens(self._source)
        other.tokens = self.tokens
        other._ids = self._ids.copy()
        return other

    def grow(self, tokens: int, name: Name | None = None) -> None:
        self.tokens = _sum(self._source.workload, self.tokens, tokens)
        if name is not None:
            self._ids += self._source.named(name, tokens)
            return
        if self._rng is None:
            self._rng = self._source.new_stream()
        rng = self._rng
        self._ids += [token(rng) for _ in range(tokens)]

    def ids(self) -> list[int]:
        return self._ids.copy()
