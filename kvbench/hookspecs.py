"""The contract between kvbench and its plugins: one hook for each kind of part.

A plugin is a module with functions of these names, marked ``@kvbench.hookimpl``, and an entry
point in the group ``kvbench`` that names the module. Each function yields records; the built-in
parts come through the same hooks (see ``kvbench/builtin.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvbench.specs import (
        AdmissionSpec,
        CommandSpec,
        ComputeModelSpec,
        DeviceSpec,
        EvictionPolicySpec,
        ExecutorSpec,
        HashAlgorithmSpec,
        RouterPolicySpec,
        TokenDatabaseSpec,
        TraceFormatSpec,
        WorkloadSpec,
    )

PROJECT = "kvbench"
"""Name of the pluggy project and of the entry-point group."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def kvbench_token_databases() -> Iterable[TokenDatabaseSpec]:  # type: ignore[empty-body]
    """Offer ways to turn tokens or block ids into keys.

    @kvbench.hookimpl
    def kvbench_token_databases():
        yield kvbench.TokenDatabaseSpec("mine", "my_package:MyDatabase", "What it does.")
    """


@hookspec
def kvbench_hash_algorithms() -> Iterable[HashAlgorithmSpec]:  # type: ignore[empty-body]
    """Offer ways to hash a block of tokens with all before it.

    @kvbench.hookimpl
    def kvbench_hash_algorithms():
        yield kvbench.HashAlgorithmSpec("mine", MyHash, "What it hashes.")
    """


@hookspec
def kvbench_eviction_policies() -> Iterable[EvictionPolicySpec]:  # type: ignore[empty-body]
    """Offer eviction policies.

    @kvbench.hookimpl
    def kvbench_eviction_policies():
        yield kvbench.EvictionPolicySpec("mine", MyPolicy, "What it evicts first.")
    """


@hookspec
def kvbench_router_policies() -> Iterable[RouterPolicySpec]:  # type: ignore[empty-body]
    """Offer router policies.

    @kvbench.hookimpl
    def kvbench_router_policies():
        yield kvbench.RouterPolicySpec("mine", MyRouter, "Whom it picks.")
    """


@hookspec
def kvbench_admission_filters() -> Iterable[AdmissionSpec]:  # type: ignore[empty-body]
    """Offer filters that say which blocks may enter a tier.

    @kvbench.hookimpl
    def kvbench_admission_filters():
        yield kvbench.AdmissionSpec("mine", MyFilter, "What it lets in.")
    """


@hookspec
def kvbench_devices() -> Iterable[DeviceSpec]:  # type: ignore[empty-body]
    """Offer devices that time the reads and writes of tiers.

    @kvbench.hookimpl
    def kvbench_devices():
        yield kvbench.DeviceSpec("mine", "my_package:make_mine", "What it is.")
    """


@hookspec
def kvbench_compute_models() -> Iterable[ComputeModelSpec]:  # type: ignore[empty-body]
    """Offer models that time the steps of an engine.

    @kvbench.hookimpl
    def kvbench_compute_models():
        yield kvbench.ComputeModelSpec("mine", MyModel, "What it times.")
    """


@hookspec
def kvbench_trace_formats() -> Iterable[TraceFormatSpec]:  # type: ignore[empty-body]
    """Offer readers of foreign traces.

    @kvbench.hookimpl
    def kvbench_trace_formats():
        yield kvbench.TraceFormatSpec("mine", MyFormat, "What it reads.")
    """


@hookspec
def kvbench_workloads() -> Iterable[WorkloadSpec]:  # type: ignore[empty-body]
    """Offer makers of synthetic traces.

    @kvbench.hookimpl
    def kvbench_workloads():
        yield kvbench.WorkloadSpec("mine", MyWorkload, "What traffic it makes.")
    """


@hookspec
def kvbench_executors() -> Iterable[ExecutorSpec]:  # type: ignore[empty-body]
    """Offer places where the cells of a sweep run.

    @kvbench.hookimpl
    def kvbench_executors():
        yield kvbench.ExecutorSpec("mine", "my_package:MyExecutor", "Where cells run.")
    """


@hookspec
def kvbench_commands() -> Iterable[CommandSpec]:  # type: ignore[empty-body]
    """Add commands to the command line.

    @kvbench.hookimpl
    def kvbench_commands():
        yield kvbench.CommandSpec("mine", "my_package.cli:mine", "What it does.")
    """
