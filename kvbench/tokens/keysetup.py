"""Everything that decides which keys a system gives to a prompt, as one flat record of settings."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from kvbench.config import Tails, read_toml
from kvbench.errors import ConfigError
from kvbench.pairs import key_values
from kvbench.plugins import did_you_mean
from kvbench.specs import HashAlgorithmSpec, ParamValue
from kvbench.tokens.cachekey import TAG_PREFIX
from kvbench.units import MAX_TOKENS

if TYPE_CHECKING:
    from kvbench.plugins import Registry

IRREPRODUCIBLE = {
    "lmcache-mp-builtin": "LMCache's MP server hashes None with Python's hash, which is an address before Python 3.12 "
    "and so another one in each process; use blake3 (lmcache-mp)"
}
"""Algorithms that exist and that no other process can follow: why, and what to do."""


class KeySetup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How keys are made.

    ``algorithm``   hash algorithm; a name of ``kvbench plugins``.
    ``params``      its parameters: ``seed`` (the text of PYTHONHASHSEED), ``none_hash``, ``vllm``, …
    ``fold``        what is compared of a digest: all of it (``none``), its ``first`` 8 bytes (as LMCache
                    folds) or its ``last`` 8 (as vLLM's events carry them). Digests of 64 bits stay.
    ``chunk``       tokens of a block.
    ``tails``       ``keep``: the partial last block has a key, too (LMCache's save_unfull_chunk).
    ``images``      of the prompt, for vLLM: ``IDENTIFIER:FIRST:COUNT`` for each, set apart by spaces, with its
                    first token and the number of its tokens.
    ``model``, ``dtype`` (of the KV), ``layout``, ``adapter``, ``adapter_path``, ``salt``  names, empty: none.
    ``world``, ``rank``  ranks that share the work, and the one whose keys these are.
    ``save_only_first_rank``  LMCache stores MLA once: the world in its keys is 1.
    ``tags``        pairs of name and value, in their order.
    """

    algorithm: str
    params: dict[str, ParamValue] = {}
    fold: Literal["none", "first", "last"] = "none"
    chunk: int
    tails: Tails = "drop"
    model: str = ""
    dtype: str = ""
    world: int = 1
    rank: int = 0
    save_only_first_rank: bool = False
    layout: str = ""
    tags: tuple[tuple[str, str], ...] = ()
    adapter: str = ""
    adapter_path: str = ""
    salt: str = ""
    images: str = ""

    def fields(self) -> dict[str, Any]:
        """All settings by name, those that decide the most first; each of ``params`` is one."""
        own = {name: getattr(self, name) for name in self.__struct_fields__ if name != "params"}
        return {"algorithm": own.pop("algorithm"), **self.params, **own}

    def replaced(self, name: str, value: Any) -> KeySetup:
        """This setup with one of :meth:`fields` changed; None takes a parameter away."""
        if name in self.__struct_fields__:
            return msgspec.structs.replace(self, **{name: value})
        others = {key: each for key, each in self.params.items() if key != name}
        return msgspec.structs.replace(self, params=others if value is None else {**others, name: value})


def parse_setup(text: str, registry: Registry, setting: str) -> KeySetup:
    """The setup of ``KEY=VALUE,…``, on top of a preset or TOML file that may stand first.

    ``setting``  what the user gave the text as, for messages.

    Raises ConfigError for an unknown preset, file, key or algorithm, for a key that is given twice, and
    for a wrong value.
    """
    first, *pairs = text.split(",")
    settings: dict[str, Any] = {}
    if "=" in first:
        pairs.insert(0, first)
    elif first.endswith(".toml") or "/" in first:
        settings = read_toml(Path(first))
    else:
        settings = load_key_preset(first.strip())
    settings |= key_values(pairs, f"{setting} {text}")
    return make_setup(settings, registry, setting)


def make_setup(settings: dict[str, Any], registry: Registry, setting: str) -> KeySetup:
    """The setup of settings by name: those of :class:`KeySetup`, ``tag.NAME`` or a table ``tags``,
    and parameters of hash algorithms. Raises ConfigError for an unknown name and a wrong value."""
    given = dict(settings)
    tags = given.pop("tags", {})
    if not isinstance(tags, dict):
        raise ConfigError(f"{setting}: tags = {tags!r} must be a table of names and values")
    known_params = {param.name for spec in registry.specs(HashAlgorithmSpec) for param in spec.params}
    fields: dict[str, Any] = {}
    params: dict[str, Any] = {}
    for name, value in given.items():
        if name.startswith(TAG_PREFIX):
            tags = {**tags, name.removeprefix(TAG_PREFIX): value}
        elif name in KeySetup.__struct_fields__ and name != "params":
            fields[name] = value
        elif name in known_params:
            params[name] = value
        else:
            known = sorted({*KeySetup.__struct_fields__, *known_params} - {"params"})
            raise ConfigError(f"{setting}: unknown key {name!r}; {did_you_mean(name, known)}")
    for name in ("algorithm", "chunk"):
        if name not in fields:
            raise ConfigError(f"{setting} needs {name}=…, or a preset that has one: {', '.join(key_preset_names())}")
    for name, value in tags.items():
        if not isinstance(value, str):
            raise ConfigError(f"{setting}: tag {name} = {value!r} must be text")
    try:
        setup = msgspec.convert({**fields, "params": params, "tags": list(tags.items())}, KeySetup, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{setting}: {error}") from None
    return _checked(setup, registry, setting)


def _checked(setup: KeySetup, registry: Registry, setting: str) -> KeySetup:
    for name, floor in (("chunk", 1), ("world", 1), ("rank", 0)):
        if not floor <= getattr(setup, name) <= MAX_TOKENS:
            raise ConfigError(f"{setting}: {name} = {getattr(setup, name)} must be from {floor} to {MAX_TOKENS:,}")
    if setup.rank >= setup.world:
        raise ConfigError(f"{setting}: rank = {setup.rank} is none of a world of {setup.world}: give 0 to world - 1")
    tags = {f"tag {name!r}": name + value for name, value in setup.tags}
    for name, value in {**setup.fields(), **tags}.items():
        try:
            str(value).encode()
        except UnicodeEncodeError:
            raise ConfigError(f"{setting}: {name} = {value!r} is not Unicode text") from None
    if setup.algorithm in IRREPRODUCIBLE:
        return setup
    spec = registry.get(HashAlgorithmSpec, setup.algorithm)
    own = {param.name: param for param in spec.params}
    params = {
        name: own[name].parse(value, f"hash algorithm {spec.name}") if name in own else value
        for name, value in setup.params.items()
    }
    return msgspec.structs.replace(setup, params=params)


def key_preset_names() -> list[str]:
    """All presets of keys, sorted."""
    return sorted(_presets())


def load_key_preset(name: str) -> dict[str, Any]:
    """The settings of a preset. Raises ConfigError for an unknown one."""
    presets = _presets()
    if name not in presets:
        raise ConfigError(f"unknown preset of keys {name!r}; {did_you_mean(name, sorted(presets))}")
    return {key: value for key, value in presets[name].items() if key != "help"}


def key_preset_help() -> dict[str, str]:
    """What each preset of keys is, in one line."""
    return {name: preset["help"] for name, preset in sorted(_presets().items())}


def _presets() -> dict[str, dict[str, Any]]:
    return tomllib.loads((files("kvbench") / "tokens" / "keypresets.toml").read_text("utf-8"))
