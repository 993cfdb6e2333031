"""Documents and questions: several questions about each of some long documents.

A prompt is the system prompt, one document and a question. The questions come document by document
(``interleave``: 1 1 2 2), round after round (``tile``: 1 2 1 2), or shuffled (``random``), the names that
benchmarks of long documents use. What is shared: the system prompt, and a document between its questions.

Expected reuse: with D documents of d tokens, q questions of t tokens (mean) each, a system prompt of s
tokens and blocks of B tokens, exactly D (q - 1) ⌊(s + d) / B⌋ B + (D - 1) ⌊s / B⌋ B tokens hit, in whatever
order, out of D q (s + d + t) on average.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvbench.trace.synth.arrivals import ArrivalParams
from kvbench.trace.synth.draw import OUTPUT_SIGMA, lognormal_count, sample
from kvbench.trace.synth.limits import check_params
from kvbench.trace.synth.rows import RowWorkload

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kvbench.trace.synth.texts import Texts

QUESTION_SIGMA = 0.8


@dataclass(frozen=True, slots=True)
class DocQaParams(ArrivalParams):
    """``num_documents`` of ``document_tokens`` with ``questions_per_document`` each, in ``order``.

    ``system_tokens`` of all prompts, ``question_tokens`` and ``output_tokens`` a question and an answer (means,
    lognormal), ``rate`` requests per second (1), ``ids`` either ``block`` or ``token``.
    """

    num_documents: int = 20
    document_tokens: int = 10_000
    questions_per_document: int = 4
    order: str = "tile"
    system_tokens: int = 100
    question_tokens: float = 40.0
    output_tokens: float = 100.0
    block_tokens: int = 64
    ids: str = "block"

    def __post_init__(self) -> None:
        floors = {
            "num_documents": 1,
            "document_tokens": 1,
            "questions_per_document": 1,
            "system_tokens": 0,
            "question_tokens": 1,
            "output_tokens": 1,
            "block_tokens": 1,
        }
        choices = {"order": ("tile", "interleave", "random"), "ids": ("block", "token")}
        check_params("docqa", self, floors=floors, choices=choices)
        self.check_arrivals("docqa")


class DocQaWorkload(RowWorkload[DocQaParams]):
    """See the module; parameters as in :class:`DocQaParams`."""

    name = "docqa"
    advice = "raise rate, or lower num_documents or questions_per_document"

    @property
    def expected_token_rate(self) -> float:
        p = self._params
        full, system = ((tokens // p.block_tokens) * p.block_tokens for tokens in (self._context, p.system_tokens))
        hit = p.num_documents * (p.questions_per_document - 1) * full + (p.num_documents - 1) * system
        return hit / (p.num_documents * p.questions_per_document * (self._context + p.question_tokens))

    @property
    def shared_prefixes(self) -> Mapping[str, int]:
        return {
            "system_tokens": self._params.system_tokens,
            "system_tokens + document_tokens": self._context,
        }

    @property
    def _context(self) -> int:
        return self._params.system_tokens + self._params.document_tokens

    def _rows(self, texts: Texts) -> Iterator[dict[str, Any]]:
        params = self._params
        starts, questions, outputs = self._starts(), self._stream("questions"), self._stream("outputs")
        for request, document in enumerate(self._documents()):
            text = texts.named((("system",), params.system_tokens), (("document", document), params.document_tokens))
            prompt = text.fork()
            prompt.grow(lognormal_count(questions, params.question_tokens, QUESTION_SIGMA))
            yield {
                "arrival_ns": next(starts),
                "input_tokens": prompt.tokens,
                "output_tokens": lognormal_count(outputs, params.output_tokens, OUTPUT_SIGMA),
                "request_id": f"r{request}",
                "ids": prompt.ids(),
            }

    def _documents(self) -> Iterator[int]:
        """The document of each request."""
        documents, questions = self._params.num_documents, self._params.questions_per_document
        total = documents * questions
        if self._params.order == "tile":
            return (at % documents for at in range(total))
        if self._params.order == "interleave":
            return (at // questions for at in range(total))
        return (at % documents for at in sample(self._stream("order"), total, total))


def make_docqa(seed: int, **params: int | float | str) -> DocQaWorkload:
    """The factory of the ``docqa`` workload. Raises ConfigError for values out of range."""
    return DocQaWorkload(seed, DocQaParams(**params))  # type: ignore[arg-type]
