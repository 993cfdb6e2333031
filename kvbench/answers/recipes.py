"""The ten questions: a table, a recipe each."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvbench.answers.answer import Answer


class Recipe(NamedTuple):
    """One question.

    ``question``  in words.
    ``module``    whose function ``answer(asked, **options)`` answers it.
    """

    question: str
    module: str

    def load(self) -> Callable[..., Answer]:
        """The function that answers, imported now."""
        found: Any = importlib.import_module(self.module)
        return found.answer  # type: ignore[no-any-return]


RECIPES = {
    "reuse": Recipe("Is there any reuse to win?", "kvbench.answers.reuse"),
    "dram": Recipe("How much DRAM should I buy?", "kvbench.answers.dram"),
    "nvme": Recipe("Add NVMe or a shared file system?", "kvbench.answers.nvme"),
    "sharing": Recipe("Private caches or one shared pool?", "kvbench.answers.sharing"),
    "eviction": Recipe("Which eviction and admission policy?", "kvbench.answers.eviction"),
    "router": Recipe("Which router policy, with which weights?", "kvbench.answers.router"),
    "block-size": Recipe("Which block size?", "kvbench.answers.blocksize"),
    "replicas": Recipe("How many replicas for my SLO?", "kvbench.answers.replicas"),
    "layout": Recipe("Which KV layout?", "kvbench.answers.layout"),
    "isolation": Recipe("What do isolation and sharing rules cost?", "kvbench.answers.isolation"),
}
"""In the order in which one comes to them."""
