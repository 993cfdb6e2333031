"""Event streams of other systems: read into kvbench's own event rows, and written out again.

vllm.py       the batches of vLLM and SGLang, in msgpack
frames.py     the messages that carry them, and files of such messages
lmcache.py    the files that LMCache's recorder writes
dynamo.py     Dynamo's router events, JSON lines
journal.py    what was heard from each worker: gaps, repeats, restarts
importer.py   a file of any of these into an events table
exporter.py   an events table into vLLM's batches
stats.py      lifetimes and reuse in an events table
damage.py     rows of a table that are missing or doubled
"""

from kvbench.events.exporter import ExportReport, export_events
from kvbench.events.importer import ImportReport, import_events
from kvbench.events.vllm import AllBlocksCleared, Batch, BlockRemoved, BlockStored, decode_batch, encode_batch

__all__ = [
    "AllBlocksCleared",
    "Batch",
    "BlockRemoved",
    "BlockStored",
    "ExportReport",
    "ImportReport",
    "decode_batch",
    "encode_batch",
    "export_events",
    "import_events",
]
