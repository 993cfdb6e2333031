"""Do two setups give the same keys to a prompt, and if not, which setting is to blame?

Each setting in which the two differ is put from one into the other, alone; where that changes no
key on either side, the difference has no effect.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvbench.errors import ConfigError
from kvbench.specs import HashAlgorithmSpec
from kvbench.tokens.arrays import token_array
from kvbench.tokens.keysetup import IRREPRODUCIBLE
from kvbench.tokens.madekeys import KEEPS_TAILS, PART_OF_KEYS, MadeKeys, make_keys

if TYPE_CHECKING:
    from collections.abc import Set

    from kvbench.plugins import Registry
    from kvbench.specs import Param
    from kvbench.tokens.arrays import Tokens, TokenSource
    from kvbench.tokens.keysetup import KeySetup

ROOT_SETTINGS = ("seed", "none_hash", "vllm")

SHOWN_DIGITS = 16
"""Of a root in a sentence."""

EXTRA_KEYS = {
    "adapter": "each block",
    "adapter_path": "each block",
    "salt": "the first block",
    "images": "the blocks that it overlaps",
}
"""What vLLM hashes beside the tokens, and in which blocks."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting in which two setups differ: its values (None: not given), whether it changes keys, and why (not)."""

    field: str
    a: Any
    b: Any
    matters: bool
    why: str


@dataclass(frozen=True, slots=True)
class KeyCheck:
    """What a comparison found.

    ``equal``        all keys are the same.
    ``equal_keys``   how many leading keys are.
    ``differences``  settings in which the setups differ, those that decide the most first.
    ``first``        the first setting that makes the keys differ; None if they do not.
    ``why``          how it does.
    """

    a: MadeKeys
    b: MadeKeys
    equal: bool
    equal_keys: int
    differences: tuple[Difference, ...]
    first: str | None
    why: str


def check_keys(a: KeySetup, b: KeySetup, tokens: TokenSource, registry: Registry) -> KeyCheck:
    """Compare the keys that two setups give to ``tokens``.

    Raises ConfigError for a setup that its system does not have and for a prompt that fills no
    block of either, ArgumentError for tokens that are none.
    """
    prompt = token_array(tokens)
    one, two = _made(a, prompt, registry, "a"), _made(b, prompt, registry, "b")
    if not one.hashes and not two.hashes and not _hopeless(one, two):
        raise ConfigError(
            f"{len(prompt):,} tokens fill no block of {a.chunk:,} or {b.chunk:,}, so there is nothing to compare; "
            "give more tokens"
        )
    equal = one.equals(two)
    differences = _differences(one, two, prompt, registry)
    first, why = ("", "") if equal else _blame(one, two, differences)
    return KeyCheck(one, two, equal, one.equal_keys(two), differences, first or None, why)


def _blame(one: MadeKeys, two: MadeKeys, differences: tuple[Difference, ...]) -> tuple[str, str]:
    """The first setting that makes keys differ, and how. A root that is random on both sides does
    so whatever follows it."""
    for each in differences:
        if each.matters and (each.field == "algorithm" or not (one.unstable and two.unstable)):
            return each.field, each.why
    unstable = one.unstable or two.unstable
    assert unstable is not None, "keys differ, so some setting does"
    return unstable.field, unstable.why


def _made(setup: KeySetup, tokens: Tokens, registry: Registry, name: str) -> MadeKeys:
    try:
        return make_keys(setup, tokens, registry)
    except ConfigError as error:
        raise ConfigError(f"configuration {name}: {error}") from None


def _hopeless(*made: MadeKeys) -> bool:
    """Whether one of them has no keys that anybody could compute."""
    return any(each.setup.algorithm in IRREPRODUCIBLE for each in made)


def _differences(one: MadeKeys, two: MadeKeys, tokens: Tokens, registry: Registry) -> tuple[Difference, ...]:
    left, right = _fields(one, two, registry), _fields(two, one, registry)
    names = dict.fromkeys(("algorithm", *ROOT_SETTINGS, *one.setup.params, *two.setup.params, *left))
    differing = [name for name in names if left.get(name) != right.get(name)]
    there = _swaps(one, {name: right.get(name) for name in differing}, tokens, registry)
    back = _swaps(two, {name: left.get(name) for name in differing}, tokens, registry)

    def changes_keys(name: str, compared: Set[str]) -> bool:
        pairs = (*there[name], *back[name])
        return any(after is not None and not before.same_effect(after, compared) for before, after in pairs)

    compared: Set[str] = one.identity.keys() & two.identity.keys()
    if "algorithm" in differing and changes_keys("algorithm", compared):
        # One side has to take the other's, with all that is part of the keys of that system.
        compared = one.identity.keys() | two.identity.keys()
    found = []
    for name in differing:
        matters = not one.equals(two) and changes_keys(name, compared)
        if name in ("seed", "none_hash") and (one.root, one.unstable) == (two.root, two.unstable):
            matters = False
        why = _why(name, one, two, registry) if matters else _why_not(name, one, two, registry)
        found.append(Difference(name, left.get(name), right.get(name), matters, why))
    return tuple(found)


def _fields(made: MadeKeys, other: MadeKeys, registry: Registry) -> dict[str, Any]:
    """All settings of one side, with the defaults of parameters that only the ``other`` side gives.

    Of a root that is not given nothing is known: the builtin hash's is 0 by default, but not with vLLM.
    """
    defaults = {name: value for name, value in _defaults(made, registry).items() if name != "none_hash"}
    return {**{name: defaults[name] for name in other.setup.params if name in defaults}, **made.setup.fields()}


def _swaps(
    start: MadeKeys, wanted: dict[str, Any], tokens: Tokens, registry: Registry
) -> dict[str, list[tuple[MadeKeys, MadeKeys | None]]]:
    """For each setting the keys before and after it takes its wanted value: alone in ``start``, and
    when the settings before it have done so already."""
    walked, position = start.setup, start
    swaps = {}
    for name, value in wanted.items():
        walked = walked.replaced(name, value)
        step = _try(walked, tokens, registry)
        swaps[name] = [(start, _try(start.setup.replaced(name, value), tokens, registry)), (position, step)]
        position = step or position
    return swaps


def _try(setup: KeySetup, tokens: Tokens, registry: Registry) -> MadeKeys | None:
    """The keys of a mixture of both setups; None if there is no such system."""
    try:
        return make_keys(setup, tokens, registry)
    except ConfigError:
        return None


def _why(name: str, one: MadeKeys, two: MadeKeys, registry: Registry) -> str:
    """How a setting makes keys differ."""
    unstable = one.unstable or two.unstable
    if unstable is not None and name in (unstable.field, *ROOT_SETTINGS):
        return unstable.why
    if name == "algorithm":
        return f"{one.layout} against {two.layout}"
    if name in ROOT_SETTINGS and one.root != two.root:
        return f"chains begin with other roots (NONE_HASH): {_short(one.root)} against {_short(two.root)}"
    if name == "fold":
        return "LMCache keeps the first 8 bytes of a digest, vLLM's events carry the last 8"
    if name == "chunk":
        return f"a key stands for {one.setup.chunk:,} tokens against {two.setup.chunk:,}"
    if name == "tails":
        return "a partial last block has a key on one side only"
    if name == "tags" and sorted(one.setup.tags) == sorted(two.setup.tags):
        return "the tags are the same in another order, which for LMCache is another key"
    if name in EXTRA_KEYS and "vllm" in (one.system, two.system):
        return f"vLLM hashes it as an extra key of {EXTRA_KEYS[name]}"
    for each in (one, two):
        # How an algorithm is run here; the system need not have a setting of that name.
        if name in each.setup.params and name in (params := _params(each, registry)):
            return f"a parameter of hash algorithm {each.setup.algorithm}: {params[name].help}"
    systems = list(dict.fromkeys((one.system, two.system)))
    keyed = [system for system in systems if name in PART_OF_KEYS[system]]
    return f"it is part of a key of {' and of '.join(keyed or systems)}"


def _why_not(name: str, one: MadeKeys, two: MadeKeys, registry: Registry) -> str:
    """Why a difference in a setting changes no key."""
    if name in {**one.setup.params, **two.setup.params}:
        takes = [name in _defaults(each, registry) for each in (one, two)]
        if not any(takes):
            return f"no parameter of {' or '.join(dict.fromkeys((one.setup.algorithm, two.setup.algorithm)))}"
        return "the root is the same" if name in ROOT_SETTINGS and one.root == two.root else "it changes no key here"
    if name == "tails":
        keeps = one.system in KEEPS_TAILS or two.system in KEEPS_TAILS
        return "the last block is full" if keeps else f"{one.system} never keys a partial block"
    if name == "dtype" and one.identity.get("dtype") and one.identity.get("dtype") == two.identity.get("dtype"):
        return "two names of one type"
    if name == "algorithm":
        return "both hash the same bytes from the same root"
    if name == "fold":
        return "digests have 64 bits already"
    if name in PART_OF_KEYS[one.system] and name in PART_OF_KEYS[two.system]:
        return "it changes no key here"
    if one.system == two.system:
        return f"not part of a key of {one.system}"
    return f"not part of a key in both {one.system} and {two.system}"


def _short(root: str) -> str:
    return root if len(root) <= SHOWN_DIGITS else root[:SHOWN_DIGITS] + "…"


def _defaults(made: MadeKeys, registry: Registry) -> dict[str, Any]:
    """The parameters of an algorithm and their defaults; None where there is none."""
    return {name: param.default for name, param in _params(made, registry).items()}


def _params(made: MadeKeys, registry: Registry) -> dict[str, Param]:
    """The parameters of an algorithm by name."""
    if made.setup.algorithm in IRREPRODUCIBLE:
        return {}
    return {param.name: param for param in registry.get(HashAlgorithmSpec, made.setup.algorithm).params}
