"""What the contracts have in common: the part that is tested, by name."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings

from kvbench.plugins import load_registry

if TYPE_CHECKING:
    from kvbench.specs import ParamValue, Spec

# A contract is inherited by several classes, so its tests run with several `self`; and how long
# an example takes says nothing about whether it is right.
CONTRACT = settings(
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow],
)


class PartContract:
    """``spec_name`` is what users type, ``params`` what the part is made with (defaults filled in).

    The part is looked up as in a replay, among the built-in and the installed ones; a class that
    sets no ``spec_name`` makes its part itself, in ``make``.
    """

    kind: ClassVar[type[Spec]]
    spec_name: ClassVar[str] = ""
    params: ClassVar[dict[str, ParamValue]] = {}

    @cached_property
    def spec(self) -> Spec:
        """The spec of the part, looked up once a test. Raises ConfigError if there is none of this name."""
        return load_registry().get(self.kind, self.spec_name)

    def build(self, *args: Any) -> Any:
        """Make the part as a replay makes it."""
        return self.spec.load()(*args, **self.spec.parse_params(self.params))

    def test_spec_describes_the_part(self) -> None:
        """The spec has a one-line help text, and so has each of its parameters."""
        if not self.spec_name:
            pytest.skip("this contract makes its part itself")
        texts = [self.spec.help, *(param.help for param in self.spec.params)]
        assert all(text.strip() and "\n" not in text for text in texts), "a help text is empty or has several lines"
