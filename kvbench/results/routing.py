"""What routing cost, and how wrong the routers' indexes were (semantics §8)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvbench.results.totals import RoutingSums
    from kvbench.routing import Dispatcher, RouterView

EVENT_COUNTS = {
    "events_applied": "events that an index took in",
    "duplicates": "events dropped, as they had come before",
    "gaps": "times that a number was skipped",
    "missing": "events missing in them",
    "late": "events that came after later ones",
    "restarts": "workers that started again",
    "outdated": "events of a worker's life before, dropped",
    "stale_sources": "workers, and stores that several share, of whose events some are missing",
}
"""Counters of the events that arrive at the indexes, summed over the routers."""

CHANNEL_COUNTS = {
    "messages": "messages that workers sent",
    "lost_messages": "of these, lost ones",
    "lost_events": "events in them",
    "duplicated_messages": "messages that came twice",
    "reordered_messages": "messages that the next one overtook",
    "cycles": "cycles in which a router read events",
    "under_way": "events not read by the end",
}
"""Counters of the way there."""

STATE_COUNTS = {
    "held_blocks": "blocks that the routers' indexes believe to be held somewhere",
    "phantom_blocks": "a block of a worker each that is believed and not so, at the end",
    "unknown_blocks": "a block of a worker each that is so and not believed, at the end",
    "parked_blocks": "a block of a worker each that no prefix reaches, as its parent is not known there",
    "unmatched": "removals of what was not known",
}
"""How the routers' own indexes end."""


def routing_record(dispatcher: Dispatcher, sums: RoutingSums) -> dict[str, Any]:
    """Tokens by what became of them; ``index`` has counters of the routers' own indexes, and is null where they
    know the truth."""
    tokens = {f"{name}_tokens": value for name, value in dataclasses.asdict(sums).items()}
    own = [view for view in dispatcher.views if view.index is not dispatcher.truth]
    return {"routers": len(dispatcher.views), **tokens, "index": _index_counts(dispatcher, own) if own else None}


def _index_counts(dispatcher: Dispatcher, views: list[RouterView]) -> dict[str, int]:
    truth = dispatcher.truth
    counts = {
        "held_blocks": sum(view.index.held for view in views),
        "phantom_blocks": sum(view.index.beyond(truth) for view in views),
        "unknown_blocks": sum(truth.beyond(view.index) for view in views),
        "parked_blocks": sum(view.index.parked for view in views),
        "unmatched": sum(view.index.unmatched for view in views),
    }
    channels = [view.channel for view in views if view.channel is not None]
    if channels:
        feeds = [channel.feed for channel in channels]
        counts["events_applied"] = sum(feed.applied for feed in feeds)
        counts["stale_sources"] = sum(len(feed.stale_sources) for feed in feeds)
        for name in ("duplicates", "gaps", "missing", "late", "restarts", "outdated"):
            counts[name] = sum(getattr(feed, name) for feed in feeds)
        for name in CHANNEL_COUNTS:
            counts[name] = sum(getattr(channel, name) for channel in channels)
    return counts
