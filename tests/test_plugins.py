"""Discovery: who brings what, and what happens when a plugin is broken (architecture, Plugins)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import kvbench
from kvbench import hookspecs
from kvbench.errors import ConfigError, PluginError
from kvbench.plugins import HOOKS, Distribution, load_registry
from kvbench.specs import CommandSpec, EvictionPolicySpec, Param

MINE = Distribution("mine", "1.0")
Install = Callable[..., None]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    return folder


@pytest.fixture
def install(site: Path) -> Install:
    """Puts a distribution on a folder as pip would: a module and a dist-info with an entry point."""

    def put(name: str, source: str) -> None:
        module = name.replace("-", "_")
        (site / f"{module}.py").write_text(source)
        info = site / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[kvbench]\n{name} = {module}\n")

    return put


def run(site: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "KVBENCH_STRICT_PLUGINS": "0", **env}
    return subprocess.run(
        [sys.executable, "-m", "kvbench", *arguments], env=environment, capture_output=True, text=True, check=False
    )


GOOD = """
import kvbench
@kvbench.hookimpl
def kvbench_eviction_policies():
    yield kvbench.EvictionPolicySpec("good", "kvbench.eviction.fifo:Fifo", "A good one.")
@kvbench.hookimpl
def kvbench_commands():
    yield kvbench.CommandSpec("hello", "good_plugin:hello", "Say hello.")
import click
@click.command()
def hello():
    click.echo("hello from a plugin")
"""


def test_installed_plugin_brings_parts_and_commands(site: Path, install: Install) -> None:
    install("good-plugin", GOOD)
    assert "good" in run(site, "plugins").stdout
    assert "[good-plugin 1.0]" in run(site, "plugins").stdout
    assert "Say hello." in run(site, "--help").stdout
    assert run(site, "hello").stdout == "hello from a plugin\n"


def test_plugin_that_raises_at_import_is_reported_and_the_others_work(site: Path, install: Install) -> None:
    install("broken-plugin", "raise RuntimeError('no GPU here')")
    install("good-plugin", GOOD)
    done = run(site, "plugins")
    assert done.returncode == 0
    assert "good" in done.stdout
    assert "warning: plugin broken-plugin of broken-plugin 1.0 was skipped: RuntimeError: no GPU here" in done.stderr
    strict = run(site, "plugins", KVBENCH_STRICT_PLUGINS="1")
    assert strict.returncode == 2
    assert "no GPU here" in strict.stderr
    assert run(site, "plugins", KVBENCH_DISABLE_PLUGIN_AUTOLOAD="1").stderr == ""


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import kvbench\n@kvbench.hookimpl\ndef kvbench_evictoin_policies(): return []", "unknown hook"),
        ("import kvbench\n@kvbench.hookimpl\ndef kvbench_commands(): yield 3", "CommandSpec"),
        ("import kvbench\n@kvbench.hookimpl\ndef kvbench_commands(): raise ValueError('x')", "ValueError"),
    ],
    ids=["misspelt-hook", "no-spec", "raising-hook"],
)
def test_plugin_that_misuses_a_hook_is_reported_by_name(site: Path, install: Install, source: str, reason: str) -> None:
    install("odd-plugin", source)
    done = run(site, "plugins")
    assert done.returncode == 0
    assert "plugin odd-plugin" in done.stderr
    assert reason in done.stderr


def test_name_clash_names_both_packages(site: Path, install: Install) -> None:
    install("good-plugin", GOOD)
    install("thief", GOOD.replace("good_plugin", "thief").replace("hello", "hallo"))
    done = run(site, "plugins")
    assert done.returncode == 2
    assert "good-plugin 1.0" in done.stderr
    assert "thief 1.0" in done.stderr


def test_factory_that_cannot_be_imported_is_named() -> None:
    class Plugin:
        @staticmethod
        @kvbench.hookimpl
        def kvbench_eviction_policies():  # type: ignore[no-untyped-def]
            yield EvictionPolicySpec("gone", "no_such_module:Policy", "Not there.")

    registry = load_registry([(Plugin, MINE)], autoload=False)
    with pytest.raises(PluginError, match=r"gone.*no_such_module"):
        kvbench.replay("traces/chat.arrow", capacity=5, policy="gone", registry=registry)


def test_unknown_name_lists_what_there_is() -> None:
    registry = load_registry(autoload=False)
    with pytest.raises(ConfigError, match=r"'fifi'; did you mean 'fifo'\? \(known: .*fifo, .*lru.*\)"):
        registry.get(EvictionPolicySpec, "fifi")


@pytest.mark.parametrize(
    ("param", "given", "parsed"),
    [
        (Param("p", int, 1, ""), "7", 7),
        (Param("p", float, 1.0, ""), "0.5", 0.5),
        (Param("p", float, 1.0, ""), 2, 2.0),
        (Param("p", bool, False, ""), "yes", True),
        (Param("p", bool, True, ""), False, False),
        (Param("p", str, "a", "", choices=("a", "b")), "b", "b"),
    ],
)
def test_parameters_take_text_and_typed_values(param: Param, given: str, parsed: object) -> None:
    assert param.parse(given, "part x") == parsed


@pytest.mark.parametrize(
    ("param", "given"),
    [
        (Param("p", int, 1, ""), "1.5"),
        (Param("p", int, 1, ""), 1.5),
        (Param("p", int, 1, ""), True),
        (Param("p", bool, True, ""), "maybe"),
        (Param("p", str, "a", "", choices=("a", "b")), "c"),
        (Param("p", float, 1.0, "", minimum=0), "-1"),
    ],
)
def test_wrong_parameter_is_named_with_its_value(param: Param, given: str) -> None:
    with pytest.raises(ConfigError, match=r"part x: parameter p = "):
        param.parse(given, "part x")


def test_required_parameter_must_be_given() -> None:
    spec = EvictionPolicySpec("x", "a:b", "", params=(Param("size", int, None, "how large"),))
    with pytest.raises(ConfigError, match="size"):
        spec.parse_params({})


def test_every_hook_has_a_spec_and_an_example_and_stands_in_the_readme() -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    declared = {name for name in vars(hookspecs) if name.startswith("kvbench_")}
    assert declared == set(HOOKS)
    for name in declared:
        assert f"def {name}()" in vars(hookspecs)[name].__doc__
        assert f"`{name}`" in readme


def test_every_built_in_part_can_be_loaded_and_names_its_source() -> None:
    registry = load_registry(autoload=False)
    for kind in HOOKS.values():
        for spec in registry.specs(kind):
            assert callable(spec.load())
            assert kind is CommandSpec or spec.source
