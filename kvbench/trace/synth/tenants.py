"""Tenants that ask for prompts of their own, below a system prompt that all of them have.

A prompt is the system prompt, one of its tenant's prompts, and a question. Tenants and, for each of
them, prompts are popular by Zipf's law. The ids of the system prompt are the same for all tenants, and a
replay keeps tenants apart unless ``--shared-blocks`` lets them share it.

Expected reuse, tenants apart: of R requests, all but one a tenant that is seen hit the ⌊s / B⌋ blocks of
the system prompt, and all but one a pair of tenant and prompt that is seen the ⌊(s + p) / B⌋ blocks up to
the question; how many are seen is expected as the sum over all of 1 - (1 - share)^R.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvbench.trace.synth.arrivals import ArrivalParams
from kvbench.trace.synth.draw import OUTPUT_SIGMA, cumulated, expected_distinct, lognormal_count, pick, zipf_shares
from kvbench.trace.synth.limits import check_params
from kvbench.trace.synth.rows import RowWorkload

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kvbench.trace.synth.texts import Texts

QUESTION_SIGMA = 0.8
MAX_PAIRS = 10**6
"""With more tenants times prompts the expected reuse is not worked out."""


@dataclass(frozen=True, slots=True)
class TenantsParams(ArrivalParams):
    """``requests`` of ``tenants``, popular by rank to the power of -``tenant_exponent``, each with ``prompts``
    of its own, popular by rank to the power of -``exponent``.

    ``shared_tokens`` of the system prompt, ``prompt_tokens`` of a tenant's prompt, ``question_tokens`` and
    ``output_tokens`` (means, lognormal), ``rate`` requests per second (1), ``ids`` either ``block`` or ``token``.
    """

    requests: int = 1000
    tenants: int = 4
    tenant_exponent: float = 1.0
    prompts: int = 20
    exponent: float = 1.0
    shared_tokens: int = 512
    prompt_tokens: int = 2048
    question_tokens: float = 60.0
    output_tokens: float = 128.0
    block_tokens: int = 64
    ids: str = "block"

    def __post_init__(self) -> None:
        floors = {
            "requests": 1,
            "tenants": 1,
            "tenant_exponent": 0,
            "prompts": 1,
            "exponent": 0,
            "shared_tokens": 0,
            "prompt_tokens": 1,
            "question_tokens": 1,
            "output_tokens": 1,
            "block_tokens": 1,
        }
        check_params("tenants", self, floors=floors, choices={"ids": ("block", "token")})
        self.check_arrivals("tenants")


class TenantsWorkload(RowWorkload[TenantsParams]):
    """See the module; parameters as in :class:`TenantsParams`."""

    name = "tenants"
    columns = ("tenant",)

    @property
    def expected_token_rate(self) -> float | None:
        p = self._params
        if p.tenants * p.prompts > MAX_PAIRS:
            return None
        tenants, prompts = zipf_shares(p.tenants, p.tenant_exponent), zipf_shares(p.prompts, p.exponent)
        seen = expected_distinct(tenants, p.requests)
        pairs = expected_distinct([one * other for one in tenants for other in prompts], p.requests)
        context = p.shared_tokens + p.prompt_tokens
        shared, full = ((tokens // p.block_tokens) * p.block_tokens for tokens in (p.shared_tokens, context))
        hit = shared * (p.requests - seen) + (full - shared) * (p.requests - pairs)
        return hit / (p.requests * (context + p.question_tokens))

    @property
    def shared_prefixes(self) -> Mapping[str, int]:
        shared, own = self._params.shared_tokens, self._params.prompt_tokens
        return {"shared_tokens": shared, "shared_tokens + prompt_tokens": shared + own}

    def _rows(self, texts: Texts) -> Iterator[dict[str, Any]]:
        params = self._params
        tenants = cumulated(zipf_shares(params.tenants, params.tenant_exponent))
        prompts = cumulated(zipf_shares(params.prompts, params.exponent))
        names = ("tenants", "prompts", "questions", "outputs")
        who, what, questions, outputs = (self._stream(name) for name in names)
        starts = self._starts()
        for request in range(params.requests):
            tenant, prompt = pick(who, tenants), pick(what, prompts)
            text = texts.named(
                (("system",), params.shared_tokens), (("prompt", tenant, prompt), params.prompt_tokens)
            ).fork()
            text.grow(lognormal_count(questions, params.question_tokens, QUESTION_SIGMA))
            yield {
                "arrival_ns": next(starts),
                "input_tokens": text.tokens,
                "output_tokens": lognormal_count(outputs, params.output_tokens, OUTPUT_SIGMA),
                "request_id": f"r{request}",
                "tenant": f"t{tenant}",
                "ids": text.ids(),
            }


def make_tenants(seed: int, **params: int | float | str) -> TenantsWorkload:
    """The factory of the ``tenants`` workload. Raises ConfigError for values out of range."""
    return TenantsWorkload(seed, TenantsParams(**params))  # type: ignore[arg-type]
