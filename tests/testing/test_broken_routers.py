"""The contract of router policies finds each kind of mistake."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from kvbench.errors import PolicyError
from kvbench.routing import PythonRouter, RouterContext, RouteRequest
from kvbench.testing import RouterPolicyContract


class LeastBlocks(PythonRouter):
    """Sends each request where the fewest blocks went so far."""

    def __init__(self, context: RouterContext) -> None:
        super().__init__(context)
        self.sent = [0] * context.workers

    def choose(self, request: RouteRequest) -> int:
        worker = self.sent.index(min(self.sent))
        self.sent[worker] += request.blocks
        return worker


class OneTooFar(LeastBlocks):
    def choose(self, request: RouteRequest) -> int:
        return super().choose(request) + 1


class CountsAcrossInstances(PythonRouter):
    calls: ClassVar[list[int]] = [0]

    def choose(self, request: RouteRequest) -> int:
        self.calls[0] += 1
        return self.calls[0] % self.workers


class DividesByBlocks(LeastBlocks):
    def choose(self, request: RouteRequest) -> int:
        scores = [held / request.blocks for held in memoryview(request.overlap)]
        return scores.index(max(scores))


class Contract(RouterPolicyContract):
    """The contract over one class."""

    def __init__(self, router: type[PythonRouter]) -> None:
        self.router = router

    def make(self, context: RouterContext) -> Any:
        return self.router(context)


def test_worker_that_is_not_there_fails() -> None:
    with pytest.raises(PolicyError):
        Contract(OneTooFar).test_names_a_worker_that_is_there(2)


def test_shared_state_fails() -> None:
    with pytest.raises(AssertionError):
        Contract(CountsAcrossInstances).test_two_instances_share_nothing()


def test_choice_that_depends_on_earlier_runs_fails() -> None:
    with pytest.raises(AssertionError):
        Contract(CountsAcrossInstances).test_same_seed_gives_same_workers(65)


def test_request_without_blocks_must_be_served() -> None:
    with pytest.raises(ZeroDivisionError):
        Contract(DividesByBlocks).test_request_without_cacheable_blocks()


class TestLeastBlocks(RouterPolicyContract):
    """A right router in Python passes."""

    def make(self, context: RouterContext) -> Any:
        return LeastBlocks(context)
