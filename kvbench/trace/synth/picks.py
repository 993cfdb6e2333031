"""Whole prompts out of a catalogue, for the tests that caches are known by: loop, scan, zipf.

All prompts have the same length, and equal prompts are equal to the last token. With R requests for P
prompts, of which D different ones are asked for, an infinite cache hits the full blocks of R - D requests:

``loop``  0, 1, … P - 1, 0, 1, …: D = min(R, P). An LRU cache smaller than the loop hits nothing.
``zipf``  popularity falls as rank to the power of -exponent: D is expected as the sum of 1 - (1 - share)^R.
``scan``  a share h of the requests is for one of P hot prompts, all alike popular; the others are for prompts that
          nobody asks for again: D is expected as R (1 - h) and P (1 - (1 - h / P)^R) more.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from kvbench.trace.synth.arrivals import ArrivalParams
from kvbench.trace.synth.draw import OUTPUT_SIGMA, cumulated, expected_distinct, lognormal_count, pick, zipf_shares
from kvbench.trace.synth.limits import check_params
from kvbench.trace.synth.rows import RowWorkload

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kvbench.trace.synth.texts import Texts

IDS = {"ids": ("block", "token")}
FLOORS = {"requests": 1, "prompts": 1, "prompt_tokens": 1, "output_tokens": 1, "block_tokens": 1}


@dataclass(frozen=True, slots=True)
class LoopParams(ArrivalParams):
    """``requests`` for ``prompts`` prompts of ``prompt_tokens``, one after another and over again;
    ``output_tokens`` an answer (mean, lognormal)."""

    requests: int = 1000
    prompts: int = 100
    prompt_tokens: int = 4096
    output_tokens: float = 128.0
    block_tokens: int = 64
    ids: str = "block"

    def __post_init__(self) -> None:
        check_params("loop", self, floors=FLOORS, choices=IDS)
        self.check_arrivals("loop")


@dataclass(frozen=True, slots=True)
class ZipfParams(ArrivalParams):
    """As :class:`LoopParams`, for prompts whose popularity falls as rank to the power of -``exponent``."""

    requests: int = 1000
    prompts: int = 500
    exponent: float = 1.0
    prompt_tokens: int = 4096
    output_tokens: float = 128.0
    block_tokens: int = 64
    ids: str = "block"

    def __post_init__(self) -> None:
        check_params("zipf", self, floors={**FLOORS, "exponent": 0}, choices=IDS)
        self.check_arrivals("zipf")


@dataclass(frozen=True, slots=True)
class ScanParams(ArrivalParams):
    """As :class:`LoopParams`, with ``hot_share`` of the requests for one of ``prompts`` hot prompts."""

    requests: int = 1000
    prompts: int = 20
    hot_share: float = 0.5
    prompt_tokens: int = 4096
    output_tokens: float = 128.0
    block_tokens: int = 64
    ids: str = "block"

    def __post_init__(self) -> None:
        check_params("scan", self, floors={**FLOORS, "hot_share": 0}, choices=IDS, shares=("hot_share",))
        self.check_arrivals("scan")


P = TypeVar("P", LoopParams, ZipfParams, ScanParams)


class _PickWorkload(RowWorkload[P]):
    def _rows(self, texts: Texts) -> Iterator[dict[str, Any]]:
        params = self._params
        starts, outputs = self._starts(), self._stream("outputs")
        for request, prompt in enumerate(self._picks()):
            name: tuple[str | int, ...] = ("prompt", prompt)
            if prompt < params.prompts:
                text = texts.named((name, params.prompt_tokens))
            else:
                text = texts.named().fork()
                text.grow(params.prompt_tokens)
            yield {
                "arrival_ns": next(starts),
                "input_tokens": text.tokens,
                "output_tokens": lognormal_count(outputs, params.output_tokens, OUTPUT_SIGMA),
                "request_id": f"r{request}",
                "ids": text.ids(),
            }

    @abstractmethod
    def _picks(self) -> Iterator[int]:
        """The prompt of each request; from ``prompts`` on, one that is asked for once."""

    @abstractmethod
    def _expected_distinct(self) -> float:
        """The number of different prompts to expect."""

    @property
    def expected_token_rate(self) -> float:
        p = self._params
        full = p.prompt_tokens // p.block_tokens * p.block_tokens
        return full / p.prompt_tokens * (1 - self._expected_distinct() / p.requests)

    @property
    def shared_prefixes(self) -> Mapping[str, int]:
        return {"prompt_tokens": self._params.prompt_tokens}


class LoopWorkload(_PickWorkload[LoopParams]):
    """See the module; parameters as in :class:`LoopParams`."""

    name = "loop"

    def _picks(self) -> Iterator[int]:
        return (request % self._params.prompts for request in range(self._params.requests))

    def _expected_distinct(self) -> float:
        return min(self._params.requests, self._params.prompts)


class ZipfWorkload(_PickWorkload[ZipfParams]):
    """See the module; parameters as in :class:`ZipfParams`."""

    name = "zipf"

    def _picks(self) -> Iterator[int]:
        rng = self._stream("prompts")
        cumulative = cumulated(zipf_shares(self._params.prompts, self._params.exponent))
        return (pick(rng, cumulative) for _ in range(self._params.requests))

    def _expected_distinct(self) -> float:
        return expected_distinct(zipf_shares(self._params.prompts, self._params.exponent), self._params.requests)


class ScanWorkload(_PickWorkload[ScanParams]):
    """See the module; parameters as in :class:`ScanParams`."""

    name = "scan"

    def _picks(self) -> Iterator[int]:
        rng, params = self._stream("prompts"), self._params
        cold = params.prompts
        for _ in range(params.requests):
            if rng.random() < params.hot_share:
                yield int(rng.random() * params.prompts)
            else:
                yield cold
                cold += 1

    def _expected_distinct(self) -> float:
        p = self._params
        return p.requests * (1 - p.hot_share) + p.prompts * expected_distinct([p.hot_share / p.prompts], p.requests)


def make_loop(seed: int, **params: int | float | str) -> LoopWorkload:
    """The factory of the ``loop`` workload. Raises ConfigError for values out of range."""
    return LoopWorkload(seed, LoopParams(**params))  # type: ignore[arg-type]


def make_zipf(seed: int, **params: int | float | str) -> ZipfWorkload:
    """The factory of the ``zipf`` workload. Raises ConfigError for values out of range."""
    return ZipfWorkload(seed, ZipfParams(**params))  # type: ignore[arg-type]


def make_scan(seed: int, **params: int | float | str) -> ScanWorkload:
    """The factory of the ``scan`` workload. Raises ConfigError for values out of range."""
    return ScanWorkload(seed, ScanParams(**params))  # type: ignore[arg-type]
