"""Keys of LMCache as text: of its engine (:class:`LmcacheKey`) and of its MP server (:class:`ObjectKey`).

They are written bit for bit as LMCache 0.5.6 writes them, so that a key in one of its logs, on its
disk or on a remote server can be compared with one made here. What of this does not survive being
read back is named by :meth:`LmcacheKey.traps`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from kvbench.errors import ConfigError, shorten
from kvbench.tokens.cachekey import CacheKey, Tags

TAG_CONFIG = "lmcache.tag."
"""Request configs with this prefix are part of a key; all others are carried along only."""

DTYPES = {
    "float16": "half",
    "bfloat16": "bfloat16",
    "float32": "float",
    "float64": "double",
    "uint8": "uint8",
    "int8": "int8",
    "int16": "int16",
    "int32": "int32",
    "int64": "int64",
    "bool": "bool",
    "float8_e4m3fn": "fp8_e4m3fn",
    "float8_e4m3fnuz": "fp8_e4m3fnuz",
    "float8_e5m2": "fp8_e5m2",
    "float8_e5m2fnuz": "fp8_e5m2fnuz",
}
"""Names of torch types without ``torch.``, and LMCache's names for them."""

MAX_SALT = 128
SALT_REFUSES = "@/\\\0"
SLASH = "-SEP-"

_HASH = re.compile(r"-?[0-9a-fA-F]+")


@dataclass(frozen=True, slots=True)
class LmcacheKey:
    """A key of LMCache's engine in the process of the server (``CacheEngineKey``).

    ``chunk_hash``  a number (negative ones come from the builtin hash), or the bytes of a digest.
    ``dtype``       of the KV, as LMCache or torch names it; kept as LMCache does.
    ``configs``     request configs in the order in which they were given.
    ``layer``       of a layer's key (``LayerCacheEngineKey``); None for the whole chunk.
    ``tags``        those of the configs that are part of the key, in their order: LMCache takes
                    the same tags in another order for another key.

    Raises ConfigError for a dtype that LMCache has no name for.
    """

    system: ClassVar[str] = "lmcache"

    model: str
    world_size: int
    worker_id: int
    chunk_hash: int | bytes
    dtype: str
    configs: tuple[tuple[str, Any], ...] = field(default=(), compare=False)
    layer: int | None = None
    tags: Tags = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", lmcache_dtype(self.dtype))
        found = ((name, str(value)) for name, value in self.configs if name.startswith(TAG_CONFIG))
        object.__setattr__(self, "tags", tuple((name.removeprefix(TAG_CONFIG), value) for name, value in found))

    def stored_once(self) -> LmcacheKey:
        """The key under ``save_only_first_rank`` (MLA): the world is 1, the worker stays."""
        return replace(self, world_size=1)

    def to_text(self) -> str:
        """``model@world@worker@hash@dtype``, ``@layer`` of a layer's key, and ``@tag%value`` for each tag."""
        number = self.chunk_hash
        digits = number.hex() if isinstance(number, bytes) else f"{number:x}"
        parts = [self.model, str(self.world_size), str(self.worker_id), digits, self.dtype]
        if self.layer is not None:
            parts.append(str(self.layer))
        return "@".join([*parts, *(f"{name}%{value}" for name, value in self.tags)])

    @classmethod
    def from_text(cls, text: str) -> LmcacheKey:
        """The key that LMCache reads from ``text``, which need not be the one that wrote it.

        Raises ConfigError where LMCache refuses the text.
        """
        parts = text.split("@")
        if len(parts) < 5:
            raise _no_key(text, "it needs model@world@worker@hash@dtype")
        model, world, worker, digits, dtype, *rest = parts
        layer = int(rest.pop(0)) if rest and _is_number(rest[0]) else None
        for tag in rest:
            if "%" not in tag:
                raise _no_key(text, f"{tag!r} after the dtype is no tag%value; is there an @ in the model's name?")
        if not _is_number(world) or not _is_number(worker):
            raise _no_key(text, f"world {world!r} and worker {worker!r} must be whole numbers")
        if not _HASH.fullmatch(digits):
            raise _no_key(text, f"hash {digits!r} must be hex digits")
        if dtype not in DTYPES.values():
            raise _no_key(text, f"dtype {dtype!r} is not one of {', '.join(DTYPES.values())}")
        configs = tuple((TAG_CONFIG + name, value) for name, _, value in (tag.partition("%") for tag in rest))
        return cls(model, int(world), int(worker), int(digits, 16), dtype, configs, layer)

    def to_dict(self) -> dict[str, Any]:
        """LMCache's dict form, with a digest as hex; configs become ``name%value``, so values come back as text.

        Raises ConfigError for a layer's key, which has none.
        """
        if self.layer is not None:
            raise ConfigError(f"layer = {self.layer}: LMCache's dict form is one of whole chunks; leave the layer out")
        number = self.chunk_hash
        fields: dict[str, Any] = {
            "__type__": "CacheEngineKey",
            "model_name": self.model,
            "world_size": self.world_size,
            "worker_id": self.worker_id,
            "chunk_hash": number.hex() if isinstance(number, bytes) else number,
            "dtype": self.dtype,
        }
        if self.configs:
            fields["request_configs"] = [f"{name}%{value}" for name, value in self.configs]
        return fields

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> LmcacheKey:
        """The key of a dict form. Raises ConfigError for a missing or wrong field."""
        try:
            number = fields["chunk_hash"]
            configs = tuple(tuple(each.split("%", 1)) for each in fields.get("request_configs", ()))
            return cls(
                fields["model_name"],
                int(fields["world_size"]),
                int(fields["worker_id"]),
                bytes.fromhex(number) if isinstance(number, str) else int(number),
                fields["dtype"],
                configs,
            )
        except (KeyError, ValueError, TypeError) as error:
            raise ConfigError(f"{shorten(fields)} is no dict form of a key of LMCache: {error!r}") from None

    def file_name(self) -> str:
        """The file of this key on LMCache's disk."""
        return self.to_text().replace("/", "-") + ".pt"

    def to_key(self) -> CacheKey:
        """The same key as kvbench sees it: the order of tags is gone, and so are the layer and the other configs."""
        return CacheKey(
            self.chunk_hash, self.model, self.world_size, self.worker_id, kv_dtype=self.dtype, tags=self.tags
        )

    def traps(self) -> list[str]:
        """What LMCache makes of this key's text that its user may not expect, one sentence each."""
        found = []
        if "@" in self.model:
            found.append(f"model {self.model!r} has an @, so LMCache cannot read the text back")
        if isinstance(self.chunk_hash, bytes):
            found.append("the hash is a digest; LMCache reads it back as a number, which is another key")
        for name, value in self.tags:
            if "@" in name + value or "%" in name:
                found.append(f"tag {name}={value} has an @, or a % in its name, so LMCache reads other tags back")
        if len(self.tags) > 1:
            found.append("LMCache takes the same tags in another order for another key")
        return found


@dataclass(frozen=True, slots=True)
class ObjectKey:
    """A key of LMCache's MP server.

    ``chunk_hash``  the whole digest.
    ``kv_rank``     the rank and its world, packed by :func:`pack_kv_rank`.
    ``group``       of KV objects, from 0.
    ``salt``        tenant salt.

    Raises ConfigError for what the server refuses: ``@`` in the model, a negative group, a salt
    with ``@ / \\`` or NUL in it or of more than 128 characters.
    """

    system: ClassVar[str] = "lmcache-mp"

    chunk_hash: bytes
    model: str
    kv_rank: int
    group: int = 0
    salt: str = ""

    def __post_init__(self) -> None:
        if "@" in self.model:
            raise ConfigError(f"model {self.model!r} has an @, which LMCache's MP server refuses")
        if self.group < 0:
            raise ConfigError(f"group = {self.group} is below 0")
        if not 0 <= self.kv_rank < 2**32:
            raise ConfigError(f"kv_rank = {self.kv_rank} must be of 32 bits")
        bad = [each for each in SALT_REFUSES if each in self.salt]
        if bad:
            raise ConfigError(f"salt {shorten(self.salt)} has {bad[0]!r}, which LMCache's MP server refuses")
        if len(self.salt) > MAX_SALT:
            raise ConfigError(f"salt has {len(self.salt)} characters; LMCache's MP server takes {MAX_SALT}")

    def file_name(self) -> str:
        """The file of this key: ``model@0x<kv_rank>@<group>@<hash>``, ``@salt`` if there is one, ``.data``."""
        parts = [self.model.replace("/", SLASH), f"0x{self.kv_rank:08x}", f"{self.group:x}", self.chunk_hash.hex()]
        return "@".join([*parts, *([self.salt] if self.salt else [])]) + ".data"

    @classmethod
    def from_file_name(cls, name: str) -> ObjectKey:
        """The key of a file. A model with ``-SEP-`` in its name comes back with a slash there.

        Raises ConfigError for any other name.
        """
        parts = name.removesuffix(".data").split("@")
        if not name.endswith(".data") or len(parts) not in (4, 5):
            raise ConfigError(f"{shorten(name)} is no file of LMCache's MP server: model@0x…@group@hash[@salt].data")
        model, rank, group, digest, *salt = parts
        try:
            return cls(bytes.fromhex(digest), model.replace(SLASH, "/"), int(rank, 16), int(group, 16), *salt)
        except ValueError as error:
            raise ConfigError(f"{shorten(name)} is no file of LMCache's MP server: {error}") from None


def pack_kv_rank(world_size: int, rank: int, local_world_size: int, local_rank: int) -> int:
    """The ``kv_rank`` of an :class:`ObjectKey`: one byte each. Raises ConfigError for what does not fit."""
    parts = (world_size, rank, local_world_size, local_rank)
    if not all(0 <= part < 256 for part in parts):
        raise ConfigError(f"world sizes and ranks {parts} must fit into a byte each")
    return int.from_bytes(bytes(parts), "big")


def lmcache_dtype(name: str) -> str:
    """LMCache's name of a dtype given by that name or by torch's. Raises ConfigError for others."""
    short = name.removeprefix("torch.")
    if short in DTYPES.values():
        return short
    if short not in DTYPES:
        raise ConfigError(f"dtype {name!r} has no name in LMCache's keys; those have {', '.join(DTYPES)}")
    return DTYPES[short]


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _no_key(text: str, why: str) -> ConfigError:
    return ConfigError(f"{shorten(text)} is no key of LMCache: {why}")
