"""OTLP JSON, which collectors write, as flat spans.

``resourceSpans`` hold ``scopeSpans`` hold ``spans``; names are in camel case, times are nanoseconds as
text, and attributes are a list of keys with typed values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbench.trace.formats.documents import BadValue

if TYPE_CHECKING:
    from collections.abc import Iterator

TOP = "resourceSpans"
_TIME_DIGITS = 19


def flat_spans(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The spans of an OTLP document with ``trace_id``, ``span_id``, ``start_time``, ``end_time`` and ``attributes``.

    Raises BadValue where one of the lists is none.
    """
    for resource in _objects(TOP, document.get(TOP)):
        for scope in _objects("scopeSpans", resource.get("scopeSpans")):
            for span in _objects("spans", scope.get("spans")):
                yield {
                    "trace_id": span.get("traceId"),
                    "span_id": span.get("spanId"),
                    "start_time": _time("startTimeUnixNano", span.get("startTimeUnixNano")),
                    "end_time": _time("endTimeUnixNano", span.get("endTimeUnixNano")),
                    "attributes": _attributes(span.get("attributes", [])),
                }


def _objects(name: str, value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise BadValue(name, value, "must be a list of objects")
    return value


def _time(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if not value.isascii() or not value.isdigit() or len(value) > _TIME_DIGITS:
        raise BadValue(name, value, "must be a number of nanoseconds since 1970")
    return int(value)


def _attributes(value: Any) -> dict[str, Any]:
    return {str(item.get("key")): _plain(item.get("value")) for item in _objects("attributes", value)}


def _plain(value: Any) -> Any:
    """A typed value as a plain one: text, number, or list; others as they are."""
    if not isinstance(value, dict) or len(value) != 1:
        return value
    ((kind, inner),) = value.items()
    if kind == "intValue" and isinstance(inner, str) and inner.isascii() and inner.isdigit():
        return int(inner[:_TIME_DIGITS])
    if kind == "arrayValue" and isinstance(inner, dict) and isinstance(inner.get("values"), list):
        return [item.get("stringValue", item) if isinstance(item, dict) else item for item in inner["values"]]
    return inner
