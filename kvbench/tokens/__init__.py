"""From prompts to keys: what identifies a block and everything before it.

namespace.py   what makes KV bytes unusable for each other, as 32 bytes
arrays.py      tokens in any form, as one array
hashes/        hash algorithms: kvbench's own and those of real systems
hashers.py     the blocks of one prompt with their hashes
masks.py       which leading tokens of a prompt are not asked about
separators.py  where a prompt is split into segments
database.py    the contract of token databases: a record batch in, keys out
chained.py     hash tokens, each block with all before it
segment.py     split at separators, hash each segment alone
ids.py         use the ids that a trace carries
cachekey.py    the key of one stored chunk in full, and its text form
lmcachekey.py  the text forms of LMCache's keys
mixing.pyx     the per-id loops of ids.py (compiled)
"""

from kvbench.tokens.arrays import token_array
from kvbench.tokens.database import KeyBatch, TokenDatabase
from kvbench.tokens.hashers import BlockHasher, HashedBlocks, SegmentHasher
from kvbench.tokens.hashes import ChainHash, Digest, make_hash
from kvbench.tokens.namespace import Namespace

__all__ = [
    "BlockHasher",
    "ChainHash",
    "Digest",
    "HashedBlocks",
    "KeyBatch",
    "Namespace",
    "SegmentHasher",
    "TokenDatabase",
    "make_hash",
    "token_array",
]
