"""A connection to Ray for the time of a sweep."""

from __future__ import annotations

import os
import signal
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kvbench.errors import ConfigError, one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

OWNER = "executor ray"
PATIENCE_S = 5.0
"""How long the head of a cluster may take to answer."""

STORE_BYTES = 100 << 20
"""Object store of a Ray that is started, beside the traces in it: Ray asks for 75 MB at least."""

ENVIRONMENT = {
    # Nothing is told to Ray's makers.
    "RAY_USAGE_STATS_ENABLED": "0",
    # Lost workers are told of on standard output, which belongs to the command; retries see to them.
    "RAY_DEDUP_LOGS_SKIP_REGEX": "^",
    # Keeps a warning about GPUs from every start.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


@contextmanager
def connected(address: str | None, processes: int, store_bytes: int) -> Iterator[None]:
    """Ray is connected inside: to the cluster at ``address``, which goes on afterwards, or to one that is started
    on this machine and stopped afterwards, of ``processes`` CPUs (0: all) and with room for ``store_bytes`` of
    traces. Where the program is connected already, that connection is used, and kept.

    Raises ConfigError where there is no such cluster.
    """
    with _environment():
        import ray

        mine = not ray.is_initialized()
        if not mine:
            _require_same(address)
        else:
            with _own_signals():
                _init(address, processes, store_bytes)
    try:
        yield
    finally:
        if mine:
            ray.shutdown()


def _init(address: str | None, processes: int, store_bytes: int) -> None:
    import ray

    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if address is None:
            store_bytes += STORE_BYTES
            ray.init(
                "local", num_cpus=processes or None, object_store_memory=store_bytes, include_dashboard=False, **quiet
            )
        else:
            _require_answer(address)
            ray.init(address, **quiet)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        ray.shutdown()
        what = "a Ray cannot be started on this machine" if address is None else f"{_named(address)} cannot be joined"
        raise ConfigError(f"{OWNER}: {what}: {one_line(error)}") from error


def _require_answer(address: str) -> None:
    """Ray itself tries for a minute before it says that nobody is there."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdecimal():
        raise ConfigError(
            f"{OWNER}: {_named(address)} is neither HOST:PORT of the head nor auto; start the sweep on a node of the "
            "cluster, or leave address out to start a Ray on this machine"
        )
    socket.create_connection((host, int(port)), PATIENCE_S).close()


def _require_same(address: str | None) -> None:
    import ray

    joined = ray.get_runtime_context().gcs_address
    if address not in (None, "auto", joined):
        raise ConfigError(f"{OWNER}: {_named(str(address))}, but this program is connected to {joined} already")


def _named(address: str) -> str:
    return f"address = {address!r}"


@contextmanager
def _environment() -> Iterator[None]:
    """:data:`ENVIRONMENT` is set inside, but for what the user has set."""
    added = {name: value for name, value in ENVIRONMENT.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


@contextmanager
def _own_signals() -> Iterator[None]:
    """What SIGTERM does is the command's affair, and is as it was afterwards: Ray sets handlers of its own, which end
    the program. Where one has done that while Ray started, the command's handler is called."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    except SystemExit:
        _set_handler(handler)
        signal.raise_signal(signal.SIGTERM)
        raise
    finally:
        _set_handler(handler)


def _set_handler(handler: Any) -> None:
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)
