"""Every part that ships keeps its contract."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from kvbench.plugins import load_registry
from kvbench.specs import (
    AdmissionSpec,
    ComputeModelSpec,
    EvictionPolicySpec,
    ExecutorSpec,
    HashAlgorithmSpec,
    RouterPolicySpec,
    TokenDatabaseSpec,
)
from kvbench.testing import (
    AdmissionFilterContract,
    ComputeModelContract,
    EvictionPolicyContract,
    ExecutorContract,
    HashAlgorithmContract,
    RouterPolicyContract,
    TokenDatabaseContract,
)

BUILTIN = load_registry(autoload=False)
# A policy that looks ahead cannot be driven without a trace; it has tests of its own.
POLICIES = [spec.name for spec in BUILTIN.specs(EvictionPolicySpec) if not spec.looks_ahead]


class Parametrized:
    """Runs a contract once for each name that ``part`` gives."""

    @pytest.fixture(autouse=True)
    def part(self, request: pytest.FixtureRequest) -> None:
        self.spec_name: Any = request.param


@pytest.mark.parametrize("part", POLICIES, indirect=True)
class TestEvictionPolicies(Parametrized, EvictionPolicyContract):
    pass


@pytest.mark.parametrize("part", BUILTIN.names(RouterPolicySpec), indirect=True)
class TestRouterPolicies(Parametrized, RouterPolicyContract):
    pass


@pytest.mark.parametrize(
    "part", [name for name in BUILTIN.names(TokenDatabaseSpec) if name != "segment"], indirect=True
)
class TestTokenDatabases(Parametrized, TokenDatabaseContract):
    pass


class TestSegmentDatabase(TokenDatabaseContract):
    """It must be told its separator."""

    spec_name = "segment"
    params: ClassVar = {"separator": "7"}


@pytest.mark.parametrize("part", BUILTIN.names(AdmissionSpec), indirect=True)
class TestAdmissionFilters(Parametrized, AdmissionFilterContract):
    pass


@pytest.mark.parametrize("part", BUILTIN.names(ExecutorSpec), indirect=True)
class TestExecutors(Parametrized, ExecutorContract):
    pass


class TestMaxPrefixThatTakesTurns(RouterPolicyContract):
    spec_name = "max-prefix"
    params: ClassVar = {"fallback": "round-robin"}


class TestChainedWithSha256(TokenDatabaseContract):
    spec_name = "chained"
    params: ClassVar = {"algorithm": "sha256"}


class TestChainedWithVllm(TokenDatabaseContract):
    """An algorithm that knows of no namespace."""

    spec_name = "chained"
    params: ClassVar = {"algorithm": "vllm-sha256"}


@pytest.mark.parametrize("part", BUILTIN.names(HashAlgorithmSpec), indirect=True)
class TestHashAlgorithms(Parametrized, HashAlgorithmContract):
    @pytest.fixture(autouse=True)
    def seeded(self, part: None) -> None:
        if "xxhash" in self.spec_name:
            # XXH3 has a random root in each process unless there is a seed.
            self.params: Any = {"seed": "0"}


class TestVllmWithLookahead(HashAlgorithmContract):
    spec_name = "vllm-sha256"
    params: ClassVar = {"lookahead": 2}


class TestDynamoWithEagle(HashAlgorithmContract):
    spec_name = "dynamo"
    params: ClassVar = {"lookahead": 1, "adapter": "a", "namespace": "n"}


COMPUTE_PARAMS: dict[str, list[dict[str, Any]]] = {
    "fixed": [
        {"prefill_ms_per_token": 0.1, "decode_ms": 10, "prompt_ms": 2},
        {"prefill_ms_per_token": 0, "decode_ms": 0},
    ],
    "linear": [{"profile": "8b-h100"}, {"profile": "70b-h100-tp8", "mix": "max"}],
    "poly": [{}, {"mix": "max", "speedup_ratio": 3.7}],
    "power": [{}],
    "preble": [{}, {"slowness": 2.5}],
    "quadratic": [{"prefill_us_per_token": 33, "context_us_per_token": 1, "attention_ns_per_pair": 6, "decode_ms": 9}],
    "roofline": [
        {"model": "Llama-3.1-8B"},
        {"model": "DeepSeek-V3", "tp": 8, "gpu": "h200-sxm"},
        {"model": "gpt-oss-120b", "tp": 2},
        {"model": "granite-4.0-h-small", "step_us": 100, "layer_us": 5},
    ],
    "table": [{"prefill": "prefill.csv", "decode": "decode.csv", "extrapolate": True}],
}
"""What each compute model is tested with."""


def test_every_compute_model_is_tested() -> None:
    assert sorted(COMPUTE_PARAMS) == BUILTIN.names(ComputeModelSpec)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        pytest.param(name, given, id=f"{name}-{at}")
        for name, all_ in COMPUTE_PARAMS.items()
        for at, given in enumerate(all_)
    ],
)
class TestComputeModels(ComputeModelContract):
    @pytest.fixture(autouse=True)
    def chosen(self, name: str, given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        rows = ((n, c, 5 + 0.03 * n + 0.001 * c + 5e-6 * n * c) for n in (1, 512, 8192) for c in (0, 1000, 64_000))
        Path("prefill.csv").write_text(
            "\n".join(["new_tokens,context_tokens,ms", *(f"{n},{c},{t}" for n, c, t in rows)])
        )
        grid = ((n, c, 10 + 0.1 * n + 2e-5 * n * c) for n in (1, 64, 256) for c in (0, 4000))
        Path("decode.csv").write_text("\n".join(["decodes,context_tokens,ms", *(f"{n},{c},{t}" for n, c, t in grid)]))
        self.spec_name: Any = name
        self.params: Any = given
