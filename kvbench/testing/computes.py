"""The contract of compute models: whole nanoseconds, the same for the same step, and more for more."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from hypothesis import assume, given
from hypothesis import strategies as st

from kvbench.serving.compute import ComputeContext, ComputeModel
from kvbench.specs import ComputeModelSpec, Spec
from kvbench.testing.parts import CONTRACT, PartContract

CAPACITY = 2_000_000
"""Tokens that fit on the GPU of the contract's steps."""

Chunk = tuple[int, int, int]


@dataclass(frozen=True)
class Work:
    """What a step does; ``held_tokens`` follow from it."""

    chunks: tuple[Chunk, ...] = ()
    decodes: int = 0
    decode_context: int = 0

    def time_ns(self, model: ComputeModel) -> int:
        """What ``model`` says of it."""
        held = self.decode_context + sum(new + context for new, context, _ in self.chunks)
        assume(held <= CAPACITY)
        time_ns = model.step_time_ns(self.chunks, self.decodes, self.decode_context, held, CAPACITY)
        assert isinstance(time_ns, int)
        assert time_ns >= 0
        return time_ns


_FIRST = st.tuples(st.integers(1, 9_000), st.integers(0, 60_000)).map(lambda drawn: (*drawn, drawn[1]))
_LATER = st.tuples(st.integers(1, 9_000), st.integers(1, 60_000)).map(lambda drawn: (*drawn, 0))


@st.composite
def works(draw: st.DrawFn) -> Work:
    """Steps with first and later chunks of prompts, and requests that decode."""
    chunks = draw(st.lists(_FIRST | _LATER, max_size=4))
    decodes = draw(st.integers(0, 200))
    return Work(tuple(chunks), decodes, decodes * draw(st.integers(1, 5_000)))


@st.composite
def grown(draw: st.DrawFn, work: Work) -> Work:
    """``work`` and something on top."""
    more = draw(st.integers(1, 3_000))
    ways = ["chunk", "decode", *(["longer", "after more"] if work.chunks else [])]
    how = draw(st.sampled_from([*ways, *(["context"] if work.decodes else [])]))
    if how == "chunk":
        return replace(work, chunks=(*work.chunks, draw(_FIRST | _LATER)))
    if how == "decode":
        return replace(work, decodes=work.decodes + 1, decode_context=work.decode_context + more)
    if how == "context":
        return replace(work, decode_context=work.decode_context + more)
    (new, context, cached), *others = work.chunks
    if how == "longer":
        return replace(work, chunks=((new + more, context, cached), *others))
    later = cached + more if context == cached else 0
    return replace(work, chunks=((new, context + more, later), *others))


class ComputeModelContract(PartContract):
    """Inherit, and set ``spec_name``; or override ``make``."""

    kind: ClassVar[type[Spec]] = ComputeModelSpec

    def make(self, context: ComputeContext) -> ComputeModel:
        """A fresh model."""
        made = self.build(context)
        assert isinstance(made, ComputeModel), f"the factory made a {type(made).__name__}"
        return made

    def fresh(self) -> ComputeModel:
        """A fresh model for a run that says nothing of its model."""
        return self.make(ComputeContext())

    def test_a_step_without_work_takes_no_time(self) -> None:
        model = self.fresh()
        assert model.step_time_ns([]) == model.step_time_ns([(0, 500, 500)]) == 0

    def test_more_tokens_never_take_less(self) -> None:
        model = self.fresh()

        @CONTRACT
        @given(data=st.data(), work=works())
        def check(data: st.DataObject, work: Work) -> None:
            assert work.time_ns(model) <= data.draw(grown(work)).time_ns(model)

        check()

    def test_steps_before_leave_no_trace(self) -> None:
        """A model says the same of a step whatever it was asked before, and whoever asks."""
        model, other = self.fresh(), self.fresh()

        @CONTRACT
        @given(work=works(), before=works())
        def check(work: Work, before: Work) -> None:
            said = work.time_ns(model)
            before.time_ns(model)
            assert work.time_ns(model) == work.time_ns(other) == said

        check()
