"""kvbench replays LLM request traces through a model of a KV-cache system.

    >>> import kvbench
    >>> result = kvbench.replay("traces/chat.arrow", capacity="10%")
    >>> round(result.rates["token"], 4)
    0.7118

Everything public is here; submodules are imported when a name is first used, so that importing
kvbench costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvbench.answers.answer import Answer
    from kvbench.answers.ask import answer
    from kvbench.api import compare, compare_measured, compare_sweeps, curve, replay, replay_matrix, replay_seeds, sweep
    from kvbench.config import RunConfig
    from kvbench.engine import CacheEngine, EngineCosts, EngineMetadata, EngineStats
    from kvbench.errors import (
        ArgumentError,
        ConfigError,
        KvbenchError,
        OutputError,
        PluginError,
        PolicyError,
        TraceError,
    )
    from kvbench.hookspecs import hookimpl
    from kvbench.plugins import Registry, load_registry
    from kvbench.replays.sample import SampleChoice
    from kvbench.results.accuracy import MeasuredComparison
    from kvbench.results.compare import Comparison
    from kvbench.results.curve import CurveResult
    from kvbench.results.matrix import MatrixResult
    from kvbench.results.repeats import RepeatResult
    from kvbench.results.result import ReplayResult
    from kvbench.specs import (
        AdmissionSpec,
        CommandSpec,
        ComputeModelSpec,
        DeviceSpec,
        EvictionPolicySpec,
        ExecutorSpec,
        HashAlgorithmSpec,
        Param,
        RouterPolicySpec,
        TokenDatabaseSpec,
        TraceFormatSpec,
        WorkloadSpec,
    )
    from kvbench.sweeps.compare import SweepComparison
    from kvbench.sweeps.file import read_sweep
    from kvbench.sweeps.result import SweepCell, SweepResult
    from kvbench.tierconfig import TierConfig
    from kvbench.tokens.namespace import Namespace
    from kvbench.trace.reader import Trace, open_trace

_HOME = {
    "AdmissionSpec": "kvbench.specs",
    "Answer": "kvbench.answers.answer",
    "ArgumentError": "kvbench.errors",
    "CacheEngine": "kvbench.engine",
    "CommandSpec": "kvbench.specs",
    "Comparison": "kvbench.results.compare",
    "ComputeModelSpec": "kvbench.specs",
    "ConfigError": "kvbench.errors",
    "CurveResult": "kvbench.results.curve",
    "DeviceSpec": "kvbench.specs",
    "EngineCosts": "kvbench.engine",
    "EngineMetadata": "kvbench.engine",
    "EngineStats": "kvbench.engine",
    "EvictionPolicySpec": "kvbench.specs",
    "ExecutorSpec": "kvbench.specs",
    "HashAlgorithmSpec": "kvbench.specs",
    "KvbenchError": "kvbench.errors",
    "MatrixResult": "kvbench.results.matrix",
    "MeasuredComparison": "kvbench.results.accuracy",
    "Namespace": "kvbench.tokens.namespace",
    "OutputError": "kvbench.errors",
    "Param": "kvbench.specs",
    "PluginError": "kvbench.errors",
    "PolicyError": "kvbench.errors",
    "Registry": "kvbench.plugins",
    "RepeatResult": "kvbench.results.repeats",
    "ReplayResult": "kvbench.results.result",
    "RouterPolicySpec": "kvbench.specs",
    "RunConfig": "kvbench.config",
    "SampleChoice": "kvbench.replays.sample",
    "SweepCell": "kvbench.sweeps.result",
    "SweepComparison": "kvbench.sweeps.compare",
    "SweepResult": "kvbench.sweeps.result",
    "TierConfig": "kvbench.tierconfig",
    "TokenDatabaseSpec": "kvbench.specs",
    "Trace": "kvbench.trace.reader",
    "TraceError": "kvbench.errors",
    "TraceFormatSpec": "kvbench.specs",
    "WorkloadSpec": "kvbench.specs",
    "answer": "kvbench.answers.ask",
    "compare": "kvbench.api",
    "compare_measured": "kvbench.api",
    "compare_sweeps": "kvbench.api",
    "curve": "kvbench.api",
    "hookimpl": "kvbench.hookspecs",
    "load_registry": "kvbench.plugins",
    "open_trace": "kvbench.trace.reader",
    "read_sweep": "kvbench.sweeps.file",
    "replay": "kvbench.api",
    "replay_matrix": "kvbench.api",
    "replay_seeds": "kvbench.api",
    "sweep": "kvbench.api",
}

__all__ = [
    "AdmissionSpec",
    "Answer",
    "ArgumentError",
    "CacheEngine",
    "CommandSpec",
    "Comparison",
    "ComputeModelSpec",
    "ConfigError",
    "CurveResult",
    "DeviceSpec",
    "EngineCosts",
    "EngineMetadata",
    "EngineStats",
    "EvictionPolicySpec",
    "ExecutorSpec",
    "HashAlgorithmSpec",
    "KvbenchError",
    "MatrixResult",
    "MeasuredComparison",
    "Namespace",
    "OutputError",
    "Param",
    "PluginError",
    "PolicyError",
    "Registry",
    "RepeatResult",
    "ReplayResult",
    "RouterPolicySpec",
    "RunConfig",
    "SampleChoice",
    "SweepCell",
    "SweepComparison",
    "SweepResult",
    "TierConfig",
    "TokenDatabaseSpec",
    "Trace",
    "TraceError",
    "TraceFormatSpec",
    "WorkloadSpec",
    "answer",
    "compare",
    "compare_measured",
    "compare_sweeps",
    "curve",
    "hookimpl",
    "load_registry",
    "open_trace",
    "read_sweep",
    "replay",
    "replay_matrix",
    "replay_seeds",
    "sweep",
]


def __getattr__(name: str) -> Any:
    import importlib

    if name == "__version__":
        return importlib.import_module("kvbench.plugins").own_version()
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'kvbench' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
