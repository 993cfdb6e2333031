"""RAG: questions about documents, each put together from a system prompt and k of N documents.

A prompt is the system prompt, the documents of the request and the question, with a separator
between them if one is asked for. All ``num_documents`` documents are equally likely. Requests come
as :mod:`kvbench.trace.synth.arrivals` has it. What is shared: the system prompt, and with a prefix cache
as many leading documents as another request had in the same order; a cache of segments can share any
document.

With ``order = sorted`` there are C(N, k) sequences of documents, all equally likely, so about
C(N, k) · ln(1 / (1 − p)) requests see a share p of them (the coupon collector's problem); with
``shuffled`` there are N! / (N − k)!.

Expected reuse: of R requests, as many hit the blocks that end in their j-th document as there are fewer
different sequences of j leading documents. Sorted, a sequence that ends with the d-th document (from 0)
is one of C(d, j − 1) and has the share C(N − 1 − d, k − j) / C(N, k); shuffled, there are N! / (N − j)! of
the same share.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kvbench.errors import ConfigError
from kvbench.trace.schema import TraceFacts, make_schema
from kvbench.trace.synth import Workload, stream
from kvbench.trace.synth.arrivals import ArrivalParams, start_times_ns
from kvbench.trace.synth.draw import OUTPUT_SIGMA, VOCABULARY, expected_distinct, lognormal_count, sample, token
from kvbench.trace.synth.limits import check_params
from kvbench.units import MAX_TOKENS

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping

    import numpy.typing as npt

    Ids = npt.NDArray[Any]

QUESTION_SIGMA = 0.8
DEFAULT_RATE = 1.0
TOO_LATE = {"goes_on": "requests", "advice": "raise rate, or lower requests"}
MAX_TERMS = 200_000
"""With more documents times documents a request, the expected reuse is not worked out."""
RARE = 1e-9
"""Of things that are expected less often than this, no two draws meet the same one."""
ROWS_PER_BATCH = 1024
IDS_PER_BATCH = 2**22
COLUMNS = ("arrival_ns", "input_tokens", "output_tokens", "request_id")


@dataclass(frozen=True, slots=True)
class RagParams(ArrivalParams):
    """``requests`` questions, each about ``docs_per_request`` of ``num_documents`` documents.

    ``document_tokens`` a document and ``system_tokens`` the system prompt (exact),
    ``question_tokens`` and ``output_tokens`` a question and an answer (means, lognormal), ``rate``
    requests per second (1), ``order`` of the documents in a prompt ``sorted`` or ``shuffled``,
    ``separator_tokens`` tokens 32000, 32001, … between the parts of a
    prompt, ``ids`` either ``block`` or ``token``.
    """

    requests: int = 500
    num_documents: int = 10
    docs_per_request: int = 4
    document_tokens: int = 2048
    system_tokens: int = 1024
    question_tokens: float = 60.0
    output_tokens: float = 128.0
    order: str = "sorted"
    separator_tokens: int = 0
    block_tokens: int = 64
    ids: str = "block"

    def __post_init__(self) -> None:
        floors = {
            "requests": 1,
            "num_documents": 1,
            "docs_per_request": 0,
            "document_tokens": 1,
            "system_tokens": 0,
            "question_tokens": 1,
            "output_tokens": 1,
            "separator_tokens": 0,
            "block_tokens": 1,
        }
        choices = {"order": ("sorted", "shuffled"), "ids": ("block", "token")}
        check_params("rag", self, floors=floors, choices=choices)
        self.check_arrivals("rag")
        if self.docs_per_request > self.num_documents:
            raise ConfigError(
                f"workload rag: docs_per_request = {self.docs_per_request} is above "
                f"num_documents = {self.num_documents}; a request has no document twice"
            )

    @property
    def separator(self) -> tuple[int, ...]:
        """The tokens of the separator, which occur nowhere else: they follow the vocabulary."""
        return tuple(range(VOCABULARY, VOCABULARY + self.separator_tokens))

    @property
    def context(self) -> tuple[int, ...]:
        """Tokens before the question: of the system prompt, then of each document, with the
        separator that follows it. No separator stands before the first part."""
        system = self.system_tokens + (self.separator_tokens if self.system_tokens else 0)
        return (system, *[self.document_tokens + self.separator_tokens] * self.docs_per_request)


class RagWorkload(Workload):
    """See the module; parameters as in :class:`RagParams`."""

    def __init__(self, seed: int, params: RagParams | None = None) -> None:
        self._seed = seed
        self._params = params or RagParams()
        self._column = "block_ids" if self._params.ids == "block" else "token_ids"
        self._schema = make_schema({*COLUMNS, self._column})

    @property
    def facts(self) -> TraceFacts:
        return TraceFacts(
            block_tokens=self._params.block_tokens,
            dense=self._params.ids == "block",
            source_name=f"rag, seed {self._seed}",
            source_format="workload",
        )

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def expected_token_rate(self) -> float | None:
        p = self._params
        if p.num_documents * p.docs_per_request > MAX_TERMS:
            return None
        ends = np.cumsum(p.context) // p.block_tokens
        counts = np.diff(ends, prepend=0).tolist()
        hit = sum(count * (p.requests - self._expected_sequences(lead)) for lead, count in enumerate(counts) if count)
        return float(hit * p.block_tokens / (p.requests * (sum(p.context) + p.question_tokens)))

    def _expected_sequences(self, lead: int) -> float:
        """How many different sequences of ``lead`` documents the requests begin with."""
        n, k, requests = self._params.num_documents, self._params.docs_per_request, self._params.requests
        if lead == 0:
            return 1.0
        if self._params.order == "shuffled":
            log_many = math.lgamma(n + 1) - math.lgamma(n - lead + 1)
            return _seen(log_many, -log_many, requests)
        groups = (
            (_log_choose(last, lead - 1), _log_choose(n - 1 - last, k - lead) - _log_choose(n, k))
            for last in range(lead - 1, n - k + lead)
        )
        return math.fsum(_seen(log_many, log_share, requests) for log_many, log_share in groups)

    @property
    def shared_prefixes(self) -> Mapping[str, int]:
        system, *documents = self._params.context
        found = {"system_tokens": system}
        if documents:
            found["system_tokens + document_tokens"] = system + documents[0]
        return found

    def batches(self) -> Iterator[pa.RecordBatch]:
        identity = _Blocks(self._params) if self._params.ids == "block" else _Tokens(self._params, self._seed)
        rows: list[dict[str, Any]] = []
        count = 0
        for row in self._rows(identity):
            rows.append(row)
            count += len(row[self._column])
            if len(rows) == ROWS_PER_BATCH or count >= IDS_PER_BATCH:
                yield self._batch(rows)
                rows, count = [], 0
        if rows:
            yield self._batch(rows)

    def _rows(self, identity: _Blocks | _Tokens) -> Iterator[dict[str, Any]]:
        params = self._params
        arrivals, picks, orders, questions, outputs = (
            stream(self._seed, "rag", name) for name in ("arrivals", "documents", "order", "questions", "outputs")
        )
        times, context = start_times_ns("rag", params, arrivals, DEFAULT_RATE, **TOO_LATE), sum(params.context)
        for request in range(params.requests):
            documents = sorted(sample(picks, params.num_documents, params.docs_per_request))
            if params.order == "shuffled":
                documents = [documents[at] for at in sample(orders, len(documents), len(documents))]
            tokens = context + lognormal_count(questions, params.question_tokens, QUESTION_SIGMA)
            if tokens > MAX_TOKENS:
                raise ConfigError(
                    f"workload rag: request {request} has a prompt of {tokens:,} tokens, above {MAX_TOKENS:,}; "
                    "lower docs_per_request, document_tokens, system_tokens or question_tokens"
                )
            yield {
                "arrival_ns": next(times),
                "input_tokens": tokens,
                "output_tokens": lognormal_count(outputs, params.output_tokens, OUTPUT_SIGMA),
                "request_id": f"r{request}",
                self._column: identity.prompt(tuple(documents), tokens, request),
            }

    def _batch(self, rows: list[dict[str, Any]]) -> pa.RecordBatch:
        arrays = []
        for field in self._schema:
            values = [row[field.name] for row in rows]
            arrays.append(_lists(values) if field.name == self._column else pa.array(values, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class _Blocks:
    """Block ids 0 … U-1 in first-seen order. A block belongs to the last part that has a token in
    it, so its id is found by the documents up to that one; blocks of questions are new ones."""

    def __init__(self, params: RagParams) -> None:
        ends = np.cumsum(params.context) // params.block_tokens
        self._counts = np.diff(ends, prepend=0).tolist()
        self._block_tokens = params.block_tokens
        self._known: dict[tuple[int, ...], Ids] = {}
        self._next = 0

    def prompt(self, documents: tuple[int, ...], tokens: int, request: int) -> Ids:
        parts = []
        for length, count in enumerate(self._counts):
            path = documents[:length]
            if path not in self._known:
                self._known[path] = self._fresh(count)
            parts.append(self._known[path])
        parts.append(self._fresh(-(-tokens // self._block_tokens) - sum(self._counts)))
        return np.concatenate(parts)

    def _fresh(self, count: int) -> Ids:
        first = self._next
        self._next += count
        return np.arange(first, self._next, dtype=np.uint64)


class _Tokens:
    """Token ids below 32000, drawn once for the system prompt, each document and each question."""

    def __init__(self, params: RagParams, seed: int) -> None:
        self._seed = seed
        self._document_tokens = params.document_tokens
        self._context = sum(params.context)
        self._separator = np.array(params.separator, dtype=np.uint32)
        system = _draw(stream(seed, "rag", "system"), params.system_tokens)
        self._system = [system, self._separator] if params.system_tokens else []
        self._documents: dict[int, Ids] = {}

    def prompt(self, documents: tuple[int, ...], tokens: int, request: int) -> Ids:
        parts = [*self._system]
        for document in documents:
            parts += [self._document(document), self._separator]
        parts.append(_draw(stream(self._seed, "rag", "question", request), tokens - self._context))
        return np.concatenate(parts)

    def _document(self, document: int) -> Ids:
        if document not in self._documents:
            rng = stream(self._seed, "rag", "document", document)
            self._documents[document] = _draw(rng, self._document_tokens)
        return self._documents[document]


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _seen(log_many: float, log_share: float, draws: int) -> float:
    """How many of e^log_many things of one share ``draws`` draws meet on average."""
    share = math.exp(min(log_share, 0.0))
    if draws * share < RARE:
        return draws * math.exp(log_many + log_share)
    return math.exp(log_many) * expected_distinct([share], draws)


def _draw(rng: random.Random, count: int) -> Ids:
    return np.array([token(rng) for _ in range(count)], dtype=np.uint32)


def _lists(rows: list[Ids]) -> pa.Array:
    offsets = np.cumsum([0, *(len(row) for row in rows)], dtype=np.int32)
    return pa.ListArray.from_arrays(offsets, np.concatenate(rows))


def make_rag(seed: int, **params: int | float | str) -> RagWorkload:
    """The factory of the ``rag`` workload. Raises ConfigError for values out of range."""
    return RagWorkload(seed, RagParams(**params))  # type: ignore[arg-type]
