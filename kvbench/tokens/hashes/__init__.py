"""Hash algorithms: a block of tokens with all before it as one digest.

base.py       the contract, and making an algorithm by name
plain.py      digests of bytes: kvbench's own layout, LMCache's multi-process server
triples.py    digests of (parent, tokens, extra) written as pickle or CBOR
roots.py      what stands before the first block (NONE_HASH), by version and seed
lmcache.py    LMCache in the engine: 64 bits, folded before they are chained
vllm.py       vLLM, with its extra keys and lookahead
dynamo.py     Dynamo's router: local and sequence hashes
loops.pyx     the per-block loops (compiled)
"""

from kvbench.tokens.hashes.base import ChainHash, Digest, make_hash

__all__ = ["ChainHash", "Digest", "make_hash"]
