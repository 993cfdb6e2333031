"""Makes a trace fit to be handed on: keyed ids in place of tokens, block ids and names.

Tokens become the ids of the blocks that they fill: the BLAKE3 of the block before and of the block's
tokens, under a key that only its holder has. A partial last block has an id of its own. So two rows
share an id exactly where they share the whole prompt up to there, which is all that a cache of
this block size asks, and nobody without the key can try texts against the ids. Ids of one key are the
same in every file; those of two keys have nothing in common (64 bits: n ids of one and m of the other
meet with odds of about n·m/2⁶⁴).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from blake3 import blake3

from kvbench.atomic import same_file
from kvbench.errors import ConfigError, OutputError, TraceError, reason
from kvbench.trace.blocksize import check_block_tokens
from kvbench.trace.columns import ListParts, list_parts, numbers
from kvbench.trace.conform import rebuilt_list
from kvbench.trace.reader import Trace, open_trace
from kvbench.trace.schema import COLUMN_BY_NAME, COLUMNS, TraceFacts, make_schema
from kvbench.trace.writer import TraceWriter, check_output

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kvbench.trace.columns import Numbers

NAME_COLUMNS = ("request_id", "session_id", "adapter", "tenant")
"""Names that are told apart by keyed names."""

ID_COLUMNS = ("block_ids", "output_block_ids")
NEVER_KEPT = ("token_ids", "output_token_ids", "original_ids")
OPTIONAL_COLUMNS = tuple(
    column.name for column in COLUMNS if not column.required and column.name not in (*ID_COLUMNS, *NEVER_KEPT)
)
"""What may be dropped."""

MIN_KEY_BYTES = 16
KEY_CONTEXT = "kvbench 2026 trace anonymize"
"""Separates these keys from any others that are derived from the same file."""

ID_BYTES = 8
ROOT = bytes(32)
"""Stands for the block before the first one."""


class IdKey:
    """A secret; ``secret`` is the content of a key file. Raises ConfigError for a short one."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) < MIN_KEY_BYTES:
            raise ConfigError(
                f"a key must have {MIN_KEY_BYTES} bytes or more, and this one has {len(secret)}; "
                "make one with `head -c 32 /dev/urandom > FILE`"
            )
        self._secret = secret

    def of(self, use: str) -> bytes:
        """The 32-byte key for one use, so that equal values of two columns have different ids."""
        return blake3(self._secret, derive_key_context=f"{KEY_CONTEXT}: {use}").digest()


def read_key(path: Path) -> IdKey:
    """The key in a file, all of its bytes. Raises ConfigError."""
    try:
        return IdKey(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path}: the key cannot be read: {reason(error)}") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


@dataclass(frozen=True, slots=True)
class AnonymizeReport:
    """What was done: ``rows``; ``keyed`` columns have new ids; ``kept`` are as they were (times perhaps coarser);
    ``dropped`` are gone; ``block_tokens`` of the new ids, None for a trace without ids."""

    rows: int
    keyed: tuple[str, ...]
    kept: tuple[str, ...]
    dropped: tuple[str, ...]
    block_tokens: int | None


def anonymize_trace(
    source: str | Path,
    output: str | Path,
    *,
    key: IdKey,
    block_tokens: int | None = None,
    drop: Sequence[str] = (),
    coarsen_ns: int = 1,
    force: bool = False,
) -> AnonymizeReport:
    """Write ``source``, a trace, to ``output`` with keyed ids.

    ``block_tokens``  of the ids that token ids become, instead of what the file says.
    ``drop``          columns of :data:`OPTIONAL_COLUMNS` to leave out.
    ``coarsen_ns``    arrivals and think times are rounded down to multiples of it.

    Raises TraceError for a bad trace and for token ids without a block size, ConfigError for a column
    that cannot be dropped, OutputError.
    """
    check_output(output)
    check_block_tokens(block_tokens)
    if coarsen_ns < 1:
        raise ConfigError(f"times cannot be rounded to {coarsen_ns} ns; give 1 ns or more")
    trace = open_trace(source, block_tokens=block_tokens)
    if same_file(source, output):
        raise OutputError(f"{output} is the trace that is read; give another name")
    present = set(trace.schema.names)
    _check_drop(drop, present, trace.name)
    if trace.ids == "token_ids" and trace.facts.block_tokens is None:
        raise TraceError(
            f"{trace.name}: the file does not say its block size, which the keyed ids need; "
            "give the smallest that will be studied with --block-tokens, for example 16"
        )
    maker = _Maker(trace, key, coarsen_ns)
    renamed = {"token_ids": "block_ids", "output_token_ids": "output_block_ids"} if trace.ids == "token_ids" else {}
    schema = make_schema({renamed.get(name, name) for name in present - set(drop)} - set(NEVER_KEPT))
    rows = 0
    with TraceWriter(output, schema, maker.facts, force=force) as writer:
        for batch in trace.batches():
            writer.write(maker.batch(batch, schema))
            rows += batch.num_rows
    keyed = tuple(name for name in schema.names if name in (*ID_COLUMNS, *NAME_COLUMNS))
    return AnonymizeReport(
        rows,
        keyed,
        kept=tuple(name for name in schema.names if name not in keyed),
        dropped=tuple(name for name in trace.schema.names if name not in schema.names),
        block_tokens=trace.facts.block_tokens if trace.ids is not None else None,
    )


def _check_drop(drop: Sequence[str], present: set[str], name_of_trace: str) -> None:
    for name in drop:
        if name not in OPTIONAL_COLUMNS:
            raise ConfigError(f"column {name!r} cannot be dropped; these can: {', '.join(OPTIONAL_COLUMNS)}")
        if name not in present:
            there = ", ".join(each for each in OPTIONAL_COLUMNS if each in present) or "nothing"
            raise ConfigError(f"{name_of_trace}: there is no column {name} to drop; it has {there}")


class _Maker:
    """Makes the batches of the result."""

    def __init__(self, trace: Trace, key: IdKey, coarsen_ns: int) -> None:
        self._key = key
        self._coarsen_ns = coarsen_ns
        self._block_key = key.of("block")
        self._id_key = key.of("block id")
        self._block_tokens = trace.facts.block_tokens or 1
        self.facts = _facts(trace)

    def batch(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """The rows of ``batch`` with the columns of ``schema``."""
        made: dict[str, pa.Array] = {}
        if "token_ids" in batch.schema.names:
            made = self._from_tokens(batch)
        for name in schema.names:
            if name not in made:
                made[name] = self._column(name, batch.column(name))
        return pa.RecordBatch.from_arrays([made[name] for name in schema.names], schema=schema)

    def _column(self, name: str, column: pa.Array) -> pa.Array:
        if name in ID_COLUMNS:
            return self._keyed_ids(column)
        if name in NAME_COLUMNS:
            return self._keyed_names(name, column)
        if name in ("arrival_ns", "think_time_ns"):
            coarse = numbers(column) // self._coarsen_ns * self._coarsen_ns
            return pa.array(coarse, column.type, mask=np.asarray(column.is_null()))
        return column

    def _keyed_ids(self, column: pa.Array) -> pa.Array:
        parts = list_parts(column)
        distinct, places = np.unique(numbers(parts.values), return_inverse=True)
        data = distinct.astype("<u8").tobytes()
        cuts = range(0, len(data) + 1, ID_BYTES)
        digests = b"".join(blake3(data[a:b], key=self._id_key).digest(ID_BYTES) for a, b in pairwise(cuts))
        keyed = np.frombuffer(digests, "<u8").astype(np.uint64)[places]
        return rebuilt_list(column, parts.offsets, pa.array(keyed, pa.uint64()), column.type)

    def _keyed_names(self, name: str, column: pa.Array) -> pa.Array:
        encoded = column.dictionary_encode()
        key = self._key.of(name)
        # Empty is the same as absent to a namespace, and stays so.
        names = [
            blake3(text.encode(), key=key).hexdigest(ID_BYTES) if text else text
            for text in encoded.dictionary.to_pylist()
        ]
        return pa.array(names, pa.string()).take(encoded.indices)

    def _from_tokens(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        """The ids of the blocks of each prompt, and of those that its answer fills."""
        prompts = list_parts(batch.column("token_ids"))
        has_answers = "output_token_ids" in batch.schema.names
        answers = list_parts(batch.column("output_token_ids")) if has_answers else None
        prompt_ids: list[bytes] = []
        answer_ids: list[bytes] = []
        offsets, answer_offsets = [0], [0]
        for row in range(batch.num_rows):
            tokens = _row(prompts, row)
            blocks, last = self._chain(tokens)
            prompt_ids += blocks
            offsets.append(len(prompt_ids))
            if answers is not None:
                # The answer goes on where the last full block of the prompt ends.
                rest = tokens[len(tokens) // self._block_tokens * self._block_tokens :]
                both = np.concatenate([rest, _row(answers, row)])
                whole = both[: len(both) // self._block_tokens * self._block_tokens]
                answer_ids += self._chain(whole, last)[0]
                answer_offsets.append(len(answer_ids))
        made = {"block_ids": _id_lists(batch.column("token_ids"), offsets, prompt_ids)}
        if has_answers:
            made["output_block_ids"] = _id_lists(batch.column("output_token_ids"), answer_offsets, answer_ids)
        return made

    def _chain(self, tokens: Numbers, before: bytes = ROOT) -> tuple[list[bytes], bytes]:
        """The ids of the blocks of ``tokens``, a partial last one included, and the digest of the last full one."""
        data = np.ascontiguousarray(tokens, "<u4").tobytes()
        width = 4 * self._block_tokens
        ids: list[bytes] = []
        full = before
        for start in range(0, len(data), width):
            digest = blake3(before + data[start : start + width], key=self._block_key).digest()
            ids.append(digest[:ID_BYTES])
            before = digest
            if start + width <= len(data):
                full = digest
        return ids, full


def _facts(trace: Trace) -> TraceFacts:
    """What holds for the result; where the trace came from is not told."""
    facts = dataclasses.replace(trace.facts, dense=False, source_name="", source_digest="")
    if trace.ids != "token_ids":
        return facts
    return dataclasses.replace(facts, tail_rule="ceil", id_kind="prefix", id_scope="global")


def _row(parts: ListParts, row: int) -> Numbers:
    return numbers(parts.values.slice(int(parts.offsets[row]), int(parts.offsets[row + 1] - parts.offsets[row])))


def _id_lists(column: pa.Array, offsets: list[int], ids: list[bytes]) -> pa.Array:
    values = np.frombuffer(b"".join(ids), "<u8").astype(np.uint64)
    kind = COLUMN_BY_NAME["block_ids"].type
    return rebuilt_list(column, np.array(offsets, np.int64), pa.array(values, pa.uint64()), kind)
