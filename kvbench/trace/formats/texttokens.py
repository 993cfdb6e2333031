"""Token ids of text: those of a tokenizer, or of a rule that needs none.

Without a tokenizer, one token is N bytes (or N characters) of a text, and its id a 32-bit hash of
them under a fixed key: equal texts have equal ids, a text that begins with another begins with its
ids, and ids are the same on every machine and in every run. A last, shorter piece is a token of its
own. Two different pieces share an id with odds of 1 in 2³².
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from blake3 import blake3

from kvbench.errors import ConfigError, one_line

if TYPE_CHECKING:
    import numpy.typing as npt

    Tokens = npt.NDArray[np.uint32]

DEFAULT_BYTES = 4
"""Bytes of a token where nothing else is said: about what English and code take in today's vocabularies."""

KEY = np.uint64(int.from_bytes(blake3(b"kvbench text token 1").digest(8), "little"))
"""What the hash starts from; another layout has another name."""

_MULTIPLIERS = (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53))
"""The 64-bit finaliser of MurmurHash3, which is in the public domain."""
_SHIFT = np.uint64(33)
_HIGH_HALF = np.uint64(32)
_WORD_BYTES = 8
_CHARACTER_BYTES = 4


class TokenRule(ABC):
    """``label``     the rule as it is given on the command line, for a trace's metadata.
    ``sentence``  what it means for the reader of a trace.
    """

    label: str
    sentence: str

    @abstractmethod
    def encode(self, text: str) -> Tokens:
        """The token ids of ``text``, without any that a tokenizer adds around it."""


class HashedPieces(TokenRule):
    """A token is ``size`` bytes of UTF-8, or ``size`` characters."""

    def __init__(self, size: int, *, characters: bool) -> None:
        unit = "characters" if characters else "bytes"
        self.label = f"{unit}_per_token={size}"
        self.sentence = (
            f"no tokenizer was used: a token is {size} {unit if size > 1 else unit[:-1]} of text, so lengths in tokens "
            "are estimates, while equal prefixes of text are equal prefixes of token ids"
        )
        self._encoding = "utf-32-le" if characters else "utf-8"
        self._width = size * (_CHARACTER_BYTES if characters else 1)

    def encode(self, text: str) -> Tokens:
        data = text.encode(self._encoding, "surrogatepass")
        count = -(-len(data) // self._width)
        cells = np.zeros(count * self._width, np.uint8)
        cells[: len(data)] = np.frombuffer(data, np.uint8)
        padded = np.zeros((count, -(-self._width // _WORD_BYTES) * _WORD_BYTES), np.uint8)
        padded[:, : self._width] = cells.reshape(count, self._width)
        state = np.full(count, KEY, np.uint64)
        if rest := len(data) % self._width:
            # So that a short last piece is not taken for a whole one that ends in zeros.
            state[-1] ^= np.uint64(rest)
        for word in padded.view("<u8").T:
            state = _mixed(state ^ word)
        return (state >> _HIGH_HALF).astype(np.uint32)


class TokenizerRule(TokenRule):
    """A tokenizer of the package ``tokenizers``: a file ``tokenizer.json``, its folder, or a Hugging Face name."""

    def __init__(self, name: str) -> None:
        self._tokenizer = _load(name)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        # A path says where the file lay, not what it is.
        digest = blake3(self._tokenizer.to_str().encode()).hexdigest(8)
        self.label = f"tokenizer={Path(name).name}"
        self.sentence = f"token ids are those of the tokenizer {name} (blake3:{digest}), no special tokens added"

    def encode(self, text: str) -> Tokens:
        clean = text.encode("utf-8", "replace").decode()
        return np.array(self._tokenizer.encode(clean, add_special_tokens=False).ids, np.uint32)


def make_rule(
    tokenizer: str | None = None, bytes_per_token: int | None = None, characters_per_token: int | None = None
) -> TokenRule:
    """The rule that is asked for, at most one; :data:`DEFAULT_BYTES` bytes a token where none is.

    Raises ConfigError for two rules, and for a tokenizer that cannot be loaded.
    """
    given = {
        "tokenizer": tokenizer,
        "bytes_per_token": bytes_per_token,
        "characters_per_token": characters_per_token,
    }
    named = [f"{name}={value}" for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise ConfigError(f"{' and '.join(named)} are different rules for the tokens of a text; give one of them")
    if tokenizer is not None:
        return TokenizerRule(tokenizer)
    if characters_per_token is not None:
        return HashedPieces(characters_per_token, characters=True)
    return HashedPieces(DEFAULT_BYTES if bytes_per_token is None else bytes_per_token, characters=False)


def _mixed(state: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    for multiplier in _MULTIPLIERS:
        state = (state ^ (state >> _SHIFT)) * multiplier
    return state ^ (state >> _SHIFT)


def _load(name: str) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise ConfigError(
            f"tokenizer={name} needs the package tokenizers: pip install 'kvbench[text]'; "
            f"or do without one, as with bytes_per_token={DEFAULT_BYTES}"
        ) from None
    path = Path(name)
    file = path / "tokenizer.json" if path.is_dir() else path
    # What the library raises is a bare Exception, of a bad file and of a missing network alike.
    try:
        if file.is_file():
            return Tokenizer.from_file(str(file))
        if path.suffix == ".json" or name.startswith((".", "/", "~")):
            raise ConfigError(f"tokenizer={name}: there is no such file")
        return Tokenizer.from_pretrained(name)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"tokenizer={name} cannot be loaded ({one_line(error)}); "
            "give the path of a tokenizer.json, or a Hugging Face name where there is a network"
        ) from error
