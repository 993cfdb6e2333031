"""A result of nobody: it is written and printed, but it says nothing, and the exit code says that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def check_served(requests: Sequence[Mapping[str, Any]]) -> None:
    """Raise TraceError if all requests of all replays were rejected.

    ``requests``  of each replay: how many ``arrived`` and were ``rejected``, and ``rejected_examples``.
    """
    from kvbench.errors import TraceError

    if not requests or any(each["rejected"] < each["arrived"] or not each["arrived"] for each in requests):
        return
    found = requests[0]
    raise TraceError(
        f"no request was served, so there are no figures: all {found['rejected']:,} were rejected, "
        f"for example: {found['rejected_examples'][0]}"
    )
