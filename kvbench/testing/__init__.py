"""What authors of plugins test with: contracts to inherit, strategies to draw from, a small trace.

    policies.py     the contract of eviction policies
    routers.py      the contract of router policies
    databases.py    the contract of token databases
    hashing.py      the contract of hash algorithms
    admissions.py   the contract of admission filters
    computes.py     the contract of compute models
    executors.py    the contract of executors
    stories.py      what happens to a tier, drawn by hypothesis
    strategies.py   requests that share prefixes
    traces.py       a small valid trace

A contract is a pytest class. Inherit it, name the part, and pytest runs all of its tests:

    from kvbench.testing import EvictionPolicyContract

    class TestMine(EvictionPolicyContract):
        spec_name = "mine"

Needs pytest and hypothesis, which kvbench itself does not.
"""

import pytest

# Before the modules are imported: a failing assert in a contract then shows its values.
pytest.register_assert_rewrite(
    *("kvbench.testing.admissions", "kvbench.testing.computes", "kvbench.testing.databases"),
    *("kvbench.testing.executors", "kvbench.testing.hashing", "kvbench.testing.parts"),
    *("kvbench.testing.policies", "kvbench.testing.routers"),
)

from kvbench.testing.admissions import AdmissionFilterContract  # noqa: E402
from kvbench.testing.computes import ComputeModelContract  # noqa: E402
from kvbench.testing.databases import TokenDatabaseContract  # noqa: E402
from kvbench.testing.executors import ExecutorContract  # noqa: E402
from kvbench.testing.hashing import HashAlgorithmContract  # noqa: E402
from kvbench.testing.policies import EvictionPolicyContract  # noqa: E402
from kvbench.testing.routers import RouterPolicyContract  # noqa: E402
from kvbench.testing.stories import Story, play, stories  # noqa: E402
from kvbench.testing.strategies import Keys, requests  # noqa: E402
from kvbench.testing.traces import small_trace  # noqa: E402

__all__ = [
    "AdmissionFilterContract",
    "ComputeModelContract",
    "EvictionPolicyContract",
    "ExecutorContract",
    "HashAlgorithmContract",
    "Keys",
    "RouterPolicyContract",
    "Story",
    "TokenDatabaseContract",
    "play",
    "requests",
    "small_trace",
    "stories",
]
