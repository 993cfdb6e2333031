"""Timed replay beside what others measured: Dynamo's reuse (routers-and-timing.md 6.H), llm-d's routers (6.C)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import llmd_study
import numpy as np
import pyarrow as pa
import pytest

import kvbench

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DYNAMO = {
    1_000: 0.045926,
    3_000: 0.068585,
    10_000: 0.219236,
    30_000: 0.337111,
    100_000: 0.371025,
    200_000: 0.373380,
}
"""Blocks of the GPU, and the share of prompt tokens that Dynamo 1.4.2 reused: one worker, block 512, answers of one
token, arrivals slowed five times."""


@pytest.fixture(scope="module")
def one_token_answers(mooncake: Callable[[str], Path]) -> pa.Table:
    """Mooncake's conversation trace with answers of one token."""
    table = pa.ipc.open_file(mooncake("conversation")).read_all()
    at = table.schema.get_field_index("output_tokens")
    return table.set_column(at, "output_tokens", pa.array(np.ones(len(table)), pa.uint32()))


@pytest.mark.parametrize("blocks", DYNAMO)
def test_reuse_on_the_clock_is_that_of_dynamo(one_token_answers: pa.Table, blocks: int) -> None:
    """It differs by at most four of 288,500 blocks."""
    result = kvbench.replay(one_token_answers, capacity=blocks, compute="poly", arrivals={"rate": 0.2})
    assert result.rates["token"] == pytest.approx(DYNAMO[blocks], abs=0.0005)


def test_routers_of_llm_d_rank_as_in_its_study() -> None:
    """Precise over estimated over random and load alone, in output tokens/s and p90 of TTFT, at 20 requests/s."""
    timed = llmd_study.study(llmd_study.workload(rate=20.0, requests=760))
    figures = {name: llmd_study.figures(each) for name, each in timed.items()}
    blind = [figures["random"], figures["load"]]
    speed, wait = zip(figures["precise"], figures["estimated"], strict=True)
    assert speed[0] > 1.2 * speed[1] > 1.2 * max(each[0] for each in blind)
    assert wait[0] < wait[1] < min(each[1] for each in blind)
    assert blind[0] == pytest.approx(blind[1], rel=0.3)
