"""The stubs say what the compiled modules are."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import kvbench

PACKAGE = Path(kvbench.__file__).parent
STUBS = sorted(PACKAGE.rglob("*.pyi"))


def test_every_compiled_module_has_a_stub():
    """But for policies, which the registry loads by name, and what they cimport: a new one is one file."""
    compiled = {source.with_suffix("") for source in PACKAGE.rglob("*.pyx")}
    without = {module for module in compiled if not module.with_suffix(".pyi").exists()}
    assert {module.parent for module in without} <= {PACKAGE / "eviction"}


@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="needs mypy, which is in the extra 'dev'")
def test_stubs_and_compiled_modules_agree(tmp_path):
    modules = [".".join(stub.relative_to(PACKAGE.parent).with_suffix("").parts) for stub in STUBS]
    allowlist = Path(__file__).with_name("stubtest_allowlist.txt")
    config = tmp_path / "mypy.ini"
    config.write_text("[mypy]\nignore_missing_imports = true\n")
    options = ["--concise", "--mypy-config-file", str(config), "--allowlist", str(allowlist)]
    env = {**os.environ, "PYTHONPATH": str(PACKAGE.parent), "MYPYPATH": str(PACKAGE.parent)}
    command = [sys.executable, "-m", "mypy.stubtest", *options, *modules]
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
