"""The package is light until one of its names is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import kvbench.trace


def test_importing_the_package_loads_neither_arrow_nor_numpy():
    code = "import sys, kvbench.trace; print(sorted({'pyarrow', 'numpy', 'blake3', 'msgspec'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": ":".join(sys.path)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", kvbench.trace.__all__)
def test_every_exported_name_is_there(name):
    assert getattr(kvbench.trace, name) is not None


def test_another_name_is_not_there():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = kvbench.trace.nothing
