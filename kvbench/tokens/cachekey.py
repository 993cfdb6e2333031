"""The key of one stored chunk in full: its hash and everything that KV bytes depend on beside the tokens.

kvbench's own text form is a query string after ``kvbench:``, for example
``kvbench:model=meta-llama/Llama-3.1-8B&world=2&rank=1&hash=0xb8a960cfcc69e7a5&dtype=bfloat16&tag.user=alice``.
Every value survives it: what could be misread is percent-encoded. A key has one text: fields that
are at their default are left out, and tags stand in order of their names. The forms of other
systems are in :mod:`kvbench.tokens.lmcachekey`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import parse_qsl, quote

from kvbench.errors import ConfigError, shorten
from kvbench.tokens.namespace import Namespace

PREFIX = "kvbench:"
TAG_PREFIX = "tag."
BYTES_PREFIX = "bytes:"
NUMBERS = {"world": "world_size", "rank": "rank"}
STRINGS = {
    "model": "model",
    "dtype": "kv_dtype",
    "layout": "layout",
    "adapter": "adapter",
    "adapter_path": "adapter_path",
    "salt": "salt",
}

Tags = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class CacheKey:
    """The key of one chunk, as kvbench sees it.

    ``chunk_hash``  a number, or the bytes of a digest; the two are never equal.
    ``model``       model name.
    ``world_size``  ranks that share the work, at least 1.
    ``rank``        the one whose KV this is, from 0.
    ``kv_dtype``    type of the KV entries.
    ``layout``      how the bytes are laid out, for example ``vllm``.
    ``adapter``     adapter, name and version.
    ``adapter_path``  where its weights are, if its name alone does not say which they are.
    ``salt``        tenant salt.
    ``tags``        anything else, as pairs of name and value; their order does not matter.

    A string that is empty, and a tag with an empty value, is the same as an absent one (semantics
    §2.1). Raises ConfigError for what should be text and is not, a number out of range, a repeated tag
    and an empty hash.
    """

    system: ClassVar[str] = "kvbench"

    chunk_hash: int | bytes
    model: str = ""
    world_size: int = 1
    rank: int = 0
    kv_dtype: str = ""
    layout: str = ""
    adapter: str = ""
    adapter_path: str = ""
    salt: str = ""
    tags: Tags = ()

    def __post_init__(self) -> None:
        if self.chunk_hash == b"":
            raise ConfigError("a key's chunk_hash is empty; give a number or the bytes of a digest")
        if self.world_size < 1:
            raise ConfigError(f"a key's world_size = {self.world_size} is below 1")
        if self.rank < 0:
            raise ConfigError(f"a key's rank = {self.rank} is below 0")
        for field in STRINGS.values():
            _check_text(field, getattr(self, field))
        if not isinstance(self.tags, tuple | list) or not all(map(_is_pair, self.tags)):
            raise ConfigError(f"a key's tags = {shorten(self.tags)} must be pairs of name and value")
        for name, value in self.tags:
            _check_text("name of a tag", name)
            _check_text(f"tag {name!r}", value)
        names = [name for name, _ in self.tags]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"a key has the tag {name!r} twice; give each tag once")
        object.__setattr__(self, "tags", tuple(sorted((name, value) for name, value in self.tags if value)))

    def namespace(self) -> Namespace:
        """The pool of KV bytes that the key belongs to: equal for keys that differ in their hash only."""
        tags = {f"key {name}": value for name, value in self.tags}
        return Namespace(
            model=self.model,
            kv_dtype=self.kv_dtype,
            parallel=f"world {self.world_size}" if self.world_size > 1 else "",
            rank=self.rank or None,
            adapter=(self.adapter, self.adapter_path) if self.adapter_path else self.adapter,
            salt=self.salt,
            tags={"layout": self.layout, **tags},
        )

    def to_text(self) -> str:
        """kvbench's text form; see the module."""
        fields = self.to_dict()
        tags = fields.pop("tags", {})
        pairs = [*fields.items(), *((TAG_PREFIX + name, value) for name, value in tags.items())]
        return PREFIX + "&".join(f"{_escape(name)}={_escape(str(value))}" for name, value in pairs)

    @classmethod
    def from_text(cls, text: str) -> CacheKey:
        """The key of a text. The order of fields does not matter. Raises ConfigError for any other text."""
        if not text.startswith(PREFIX):
            raise ConfigError(f"{shorten(text)} is no key of kvbench: those begin with {PREFIX}")
        query = text.removeprefix(PREFIX)
        try:
            pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True, errors="surrogatepass")
        except ValueError as error:
            raise ConfigError(f"{shorten(text)} is no key of kvbench: {error}") from None
        fields: dict[str, Any] = {}
        tags: dict[str, str] = {}
        for name, value in pairs:
            place, short = (tags, name.removeprefix(TAG_PREFIX)) if name.startswith(TAG_PREFIX) else (fields, name)
            if short in place:
                raise ConfigError(f"{shorten(text)} is no key of kvbench: {name} stands twice")
            place[short] = value
        return cls.from_dict({**fields, "tags": tags})

    def to_dict(self) -> dict[str, Any]:
        """The fields as they can be written to JSON, those at their default left out."""
        named = {
            "model": self.model,
            "world": self.world_size if self.world_size > 1 else None,
            "rank": self.rank,
            "hash": hash_text(self.chunk_hash),
            "dtype": self.kv_dtype,
            "layout": self.layout,
            "adapter": self.adapter,
            "adapter_path": self.adapter_path,
            "salt": self.salt,
            "tags": dict(self.tags),
        }
        return {name: value for name, value in named.items() if value}

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> CacheKey:
        """The key of :meth:`to_dict`; numbers may be text. Raises ConfigError for unknown or wrong fields."""
        known = {"hash", "tags", *NUMBERS, *STRINGS}
        for name in fields:
            if name not in known:
                raise ConfigError(f"a key has no field {name!r}; it has {', '.join(sorted(known))}")
        if "hash" not in fields:
            raise ConfigError("a key needs a field hash, for example hash=0xb8a960cfcc69e7a5")
        tags = fields.get("tags", {})
        if not isinstance(tags, dict):
            raise ConfigError(f"a key's tags = {shorten(tags)} must be a table of names and values")
        _check_text("hash", fields["hash"])
        given: dict[str, Any] = {STRINGS[name]: fields[name] for name in STRINGS if name in fields}
        for name in NUMBERS.keys() & fields.keys():
            try:
                given[NUMBERS[name]] = int(fields[name])
            except (ValueError, TypeError):
                raise ConfigError(f"a key's {name} = {fields[name]!r} must be a whole number") from None
        return cls(parse_hash(fields["hash"]), **given, tags=tuple(tags.items()))


def hash_text(chunk_hash: int | bytes) -> str:
    """``0x…`` (or ``-0x…``) for a number, ``bytes:`` and hex digits for a digest."""
    return BYTES_PREFIX + chunk_hash.hex() if isinstance(chunk_hash, bytes) else hex(chunk_hash)


def parse_hash(text: str) -> int | bytes:
    """The hash that :func:`hash_text` wrote. Raises ConfigError for any other text."""
    try:
        if text.startswith(BYTES_PREFIX):
            return bytes.fromhex(text.removeprefix(BYTES_PREFIX))
        if text.removeprefix("-").startswith("0x"):
            return int(text, 16)
    except ValueError:
        pass
    raise ConfigError(
        f"a key's hash = {shorten(text)} must be 0x… for a number or {BYTES_PREFIX}… for a digest, in hex"
    )


def _is_pair(tag: object) -> bool:
    return isinstance(tag, tuple | list) and len(tag) == 2


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise ConfigError(f"a key's {name} = {shorten(value)} must be text")


def _escape(text: str) -> str:
    return quote(text, safe="/:", errors="surrogatepass")
