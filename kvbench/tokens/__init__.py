"""From prompts to keys: what identifies a block and everything before it.

namespace.py   what makes KV bytes unusable for each other, as 32 bytes
arrays.py      tokens in any form, as one array
hashes/        hash algorithms: kvbench's own and those of real systems
hashers.py     the blocks of one prompt with their hashes
ready.py       what is given in place of tokens: ready hashes
masks.py       which leading tokens of a prompt are not asked about
separators.py  where a prompt is split into segments
database.py    the contract of token databases: a record batch in, keys out
chained.py     hash tokens, each block with all before it
segment.py     split at separators, hash each segment alone
ids.py         use the ids that a trace carries
cachekey.py    the key of one stored chunk in full, and its text form
lmcachekey.py  the text forms of LMCache's keys
prompts.py     the tokens of one prompt, typed, from a file or from a trace
keysetup.py    all settings that decide on a prompt's keys (presets: keypresets.toml)
madekeys.py    the keys of a setup
keycheck.py    two setups compared, and the setting to blame
mixing.pyx     the per-id loops of ids.py (compiled)
"""

from kvbench.tokens.arrays import token_array
from kvbench.tokens.cachekey import CacheKey
from kvbench.tokens.database import KeyBatch, TokenDatabase
from kvbench.tokens.hashers import BlockHasher, HashedBlocks, SegmentHasher
from kvbench.tokens.hashes import ChainHash, Digest, make_hash
from kvbench.tokens.keycheck import KeyCheck, check_keys
from kvbench.tokens.keysetup import KeySetup, parse_setup
from kvbench.tokens.lmcachekey import LmcacheKey, ObjectKey
from kvbench.tokens.namespace import Namespace

__all__ = [
    "BlockHasher",
    "CacheKey",
    "ChainHash",
    "Digest",
    "HashedBlocks",
    "KeyBatch",
    "KeyCheck",
    "KeySetup",
    "LmcacheKey",
    "Namespace",
    "ObjectKey",
    "SegmentHasher",
    "TokenDatabase",
    "check_keys",
    "make_hash",
    "parse_setup",
    "token_array",
]
