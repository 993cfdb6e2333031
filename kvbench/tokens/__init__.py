"""From prompts to keys: what identifies a block and everything before it.

namespace.py   what makes KV bytes unusable for each other, as 32 bytes
database.py    the contract: a record batch in, keys out
chained.py     hash tokens, each block with all before it
ids.py         use the ids that a trace carries
cachekey.py    the key of one stored chunk in full, and its text form
lmcachekey.py  the text forms of LMCache's keys
mixing.pyx     the per-id loops of ids.py (compiled)
"""

from kvbench.tokens.database import KeyBatch, TokenDatabase
from kvbench.tokens.namespace import Namespace

__all__ = ["KeyBatch", "Namespace", "TokenDatabase"]
