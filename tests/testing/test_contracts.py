"""Every part that ships keeps its contract."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from kvbench.plugins import load_registry
from kvbench.specs import AdmissionSpec, EvictionPolicySpec, HashAlgorithmSpec, RouterPolicySpec, TokenDatabaseSpec
from kvbench.testing import (
    AdmissionFilterContract,
    EvictionPolicyContract,
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
