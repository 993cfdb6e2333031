"""Cells on Ray keep the contract of executors."""

from __future__ import annotations

from typing import Any

import pytest

from kvbench.testing import ExecutorContract


@pytest.mark.usefixtures("connection")
@pytest.mark.parametrize("trace", ["path", "object"])
class TestRay(ExecutorContract):
    spec_name = "ray"

    @pytest.fixture(autouse=True)
    def chosen(self, trace: str) -> None:
        self.params: Any = {"trace": trace}
