"""The library's way to the ten questions: the same path as ``kvbench answer``."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from kvbench.answers.answer import Asked
from kvbench.answers.recipes import RECIPES
from kvbench.config import RunConfig, load_config
from kvbench.errors import ConfigError
from kvbench.plugins import did_you_mean, load_registry
from kvbench.replays.parts import choose
from kvbench.specs import ExecutorSpec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kvbench.answers.answer import Answer
    from kvbench.plugins import Registry
    from kvbench.sweeps.executor import Executor


def answer(
    question: str,
    trace: str | Path | None = None,
    *,
    executor: Executor | str | None = None,
    registry: Registry | None = None,
    **settings: Any,
) -> Answer:
    """Answer one of the ten questions about a trace: a recommendation with the tables and charts it rests on.

    ``question``  as ``kvbench answer`` has it: ``"dram"``, ``"block-size"``, …
    ``trace``     a path: most questions read it several times.
    ``executor``  where replays run, as of :func:`kvbench.sweep`; None: one after another in this process.
    ``registry``  the parts to choose from; by default the built-in ones and all installed plugins.
    ``settings``  those of the question, which are the arguments of its recipe (``worth="2%"``, ``candidates=["llmd"]``,
                  ``counts=[2, 4]``), and the keys of :class:`kvbench.RunConfig`. Sizes and shares are text.

    Nothing is written, and no time measured. Raises a :class:`kvbench.KvbenchError` for a bad setting or trace.

        >>> import kvbench
        >>> found = kvbench.answer("dram", "traces/chat.arrow", capacity="500,1000,2000")
        >>> found.advice[0].partition(":")[0], found.tables["capacities"].num_rows
        ('Keep 2,000 blocks (128,000 tokens)', 3)
    """
    if question not in RECIPES:
        raise ConfigError(f"unknown question {question!r}; {did_you_mean(question, list(RECIPES))}")
    given = settings if trace is None else {**settings, "trace": str(trace)}
    config, options = configured(question, given)
    parts = registry if registry is not None else load_registry()
    place: Executor | None = (
        choose(parts, ExecutorSpec, executor, "executor").make() if isinstance(executor, str) else executor
    )
    return RECIPES[question].load()(Asked(config=config, registry=parts, executor=place), **options)


def configured(question: str, given: Mapping[str, Any]) -> tuple[RunConfig, dict[str, Any]]:
    """What is ``given``, as the settings of a run and the question's own. Raises ConfigError for an unknown one."""
    own = list(inspect.signature(RECIPES[question].load()).parameters)[1:]
    options = {name: value for name, value in given.items() if name in own}
    shared = {name: value for name, value in given.items() if name not in own}
    if question == "replicas":
        from kvbench.answers.replicas import numbers_of

        # The settings are checked as those of the most workers: one of them needs no router.
        options["counts"] = numbers_of(options.get("counts"))
        shared["workers"] = options["counts"][-1]
    return load_config(None, shared), options
