"""Joining a cluster, and starting a Ray."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import ray
from material import tasks

from kvbench.errors import ConfigError
from kvbench_ray.cluster import ENVIRONMENT
from kvbench_ray.executor import RayExecutor


def test_a_ray_of_its_own_has_the_asked_cpus_and_ends_with_the_sweep(
    monkeypatch: pytest.MonkeyPatch, short_folder: Path
) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(short_folder))
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    handler = signal.getsignal(signal.SIGTERM)
    begun = RayExecutor(processes=1).run(tasks(1000))
    assert next(begun).status == "done"
    assert ray.cluster_resources()["CPU"] == 1
    assert signal.getsignal(signal.SIGTERM) is handler
    assert not set(ENVIRONMENT) & set(os.environ)
    begun.close()  # type: ignore[attr-defined]
    assert not ray.is_initialized()


def test_a_cluster_that_was_joined_goes_on(cluster: Any) -> None:
    for _ in range(2):
        assert len(list(RayExecutor(cluster.address).run(tasks(3)))) == 3
        assert not ray.is_initialized()


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("127.0.0.1:1", "cannot be joined: ConnectionRefusedError"),
        ("ray://127.0.0.1:10001", "is neither HOST:PORT of the head nor auto"),
        ("somewhere", "is neither HOST:PORT of the head nor auto"),
    ],
)
def test_an_address_without_a_cluster_is_told(address: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"address = '{address}' {said}"):
        next(iter(RayExecutor(address).run(tasks(1))))


def test_a_program_that_is_connected_elsewhere_is_told(connection: Any) -> None:
    with pytest.raises(ConfigError, match=r"address = '127\.0\.0\.1:1', but this program is connected to"):
        next(iter(RayExecutor("127.0.0.1:1").run(tasks(1))))
    assert len(list(RayExecutor(connection.address).run(tasks(1)))) == 1
