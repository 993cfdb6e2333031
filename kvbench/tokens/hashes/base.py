"""The contract of hash algorithms, and how one is made by name."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from kvbench.config import parse_part
from kvbench.errors import ArgumentError, ConfigError, PluginError, one_line
from kvbench.plugins import load_registry
from kvbench.specs import HashAlgorithmSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from kvbench.plugins import Registry
    from kvbench.tierconfig import PartChoice
    from kvbench.tokens.arrays import Tokens

Digest = bytes | int
"""What an algorithm makes of a block, in full: its ``form`` says which of the two."""

Extra = tuple[Any, ...] | None
"""What is hashed beside a block's tokens; None: nothing."""


class ChainHash(ABC):
    """Hashes blocks of tokens, each with the digest of the block before it.

    Tokens are what :func:`kvbench.tokens.token_array` makes: contiguous unsigned 32-bit integers.

    ``form``          ``"bytes"`` or ``"int"``: the type of a digest.
    ``takes_extras``  blocks may have extra keys.
    ``takes_root``    another root of 32 bytes may stand in place of ``root``, that of a namespace.
    ``lookahead``     how many tokens behind a block are part of its hash; a block is hashed as the
                      original does only when so many follow it.
    """

    form: ClassVar[Literal["bytes", "int"]] = "bytes"
    takes_extras: ClassVar[bool] = False
    takes_root: bool = False
    lookahead: int = 0

    @property
    @abstractmethod
    def root(self) -> Digest | None:
        """The parent of a first block (NONE_HASH); None where a first block has no parent."""

    @abstractmethod
    def chain(self, parent: Digest | None, tokens: Tokens, extra: Extra = None, ahead: Tokens | None = None) -> Digest:
        """The digest of one block.

        ``extra``  its extra keys, where the algorithm takes any.
        ``ahead``  the tokens behind it, at most ``lookahead`` of them.
        """

    def chain_blocks(
        self, parent: Digest | None, tokens: Tokens, block_tokens: int, extras: Sequence[Extra] | None = None
    ) -> list[Digest]:
        """The digests of all blocks of ``tokens``, of which the last may be partial.

        ``extras``  for each block its extra keys or None.
        """
        self.check_extras(extras, -(-len(tokens) // block_tokens))
        digests: list[Digest] = []
        for number, at in enumerate(range(0, len(tokens), block_tokens)):
            end = at + block_tokens
            extra = None if extras is None else extras[number]
            parent = self.chain(parent, tokens[at:end], extra, tokens[end : end + self.lookahead])
            digests.append(parent)
        return digests

    @abstractmethod
    def key(self, digest: Digest) -> int:
        """The 64 unsigned bits that kvbench knows this block by."""

    def keys(self, digests: Sequence[Digest]) -> npt.NDArray[np.uint64]:
        """The keys of several digests."""
        return np.fromiter(map(self.key, digests), np.uint64, len(digests))

    def hashable(self, length: int, block_tokens: int) -> int:
        """How many full blocks of ``length`` tokens have all tokens that their hashes need."""
        return max(0, length - self.lookahead) // block_tokens

    def check_extras(self, extras: Sequence[Extra] | None, blocks: int) -> None:
        """Raise ArgumentError for extra keys that are too few, too many, or without effect."""
        if extras is None:
            return
        if not self.takes_extras and any(extra is not None for extra in extras):
            raise ArgumentError(f"extra keys have no effect: {type(self).__name__} hashes tokens alone")
        if len(extras) != blocks:
            raise ArgumentError(f"there are extra keys for {len(extras)} blocks, and {blocks} blocks")


def make_hash(choice: PartChoice, registry: Registry | None = None) -> ChainHash:
    """The hash algorithm that ``choice`` names: ``"vllm-sha256-cbor,seed=0"``, or a dict with
    ``name`` and its parameters.

    ``registry``  where it is looked up; None: among the built-in and installed ones.

    Raises ConfigError for a name or parameter that there is not, for a missing package, and for
    an algorithm that no other process could reproduce.
    """
    name, params = parse_part(choice, "algorithm")
    spec = (load_registry() if registry is None else registry).get(HashAlgorithmSpec, name)
    return build_hash(spec, spec.parse_params(params))


def build_hash(spec: HashAlgorithmSpec, params: dict[str, Any]) -> ChainHash:
    """``spec`` made with ``params``; raises as :func:`make_hash` does."""
    for package in spec.needs:
        try:
            importlib.import_module(package)
        except ImportError:
            raise ConfigError(
                f"hash algorithm {spec.name} needs the package {package}: pip install 'kvbench[keys]'"
            ) from None
    try:
        made = spec.load()(**params)
    except ConfigError as error:
        raise ConfigError(f"hash algorithm {spec.name}: {error}") from None
    except PluginError:
        raise
    except Exception as error:  # a stranger's code may raise anything
        raise PluginError(f"hash algorithm {spec.name} cannot be made: {one_line(error)}") from error
    if not isinstance(made, ChainHash):
        raise PluginError(f"hash algorithm {spec.name}: its factory made a {type(made).__name__}, not a ChainHash")
    return made
