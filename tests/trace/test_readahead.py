"""Reading ahead changes nothing but the time."""

from __future__ import annotations

import gc
import threading
import time

import pytest

from kvbench.trace.readahead import PATIENCE_S, read_ahead


def readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "kvbench-reader"]


def test_items_come_in_order_and_no_thread_is_left():
    assert list(read_ahead(iter(range(100)))) == list(range(100))
    assert list(read_ahead(iter(()))) == []
    assert readers() == []


def test_one_item_is_made_ahead_and_no_more():
    made = []

    def items():
        for item in range(5):
            made.append(item)
            yield item

    ahead = read_ahead(items())
    for item in range(4):
        assert next(ahead) == item
        time.sleep(0.02)
        assert made == list(range(item + 2))
    ahead.close()


def test_an_error_comes_where_its_item_would_have_come():
    def items():
        yield 1
        yield 2
        raise ValueError("the third")

    ahead = read_ahead(items())
    assert (next(ahead), next(ahead)) == (1, 2)
    with pytest.raises(ValueError, match="the third"):
        next(ahead)
    assert readers() == []


def test_closing_early_ends_the_thread():
    ahead = read_ahead(iter(range(100)))
    next(ahead)
    ahead.close()
    assert readers() == []
    dropped = read_ahead(iter(range(100)))
    next(dropped)
    del dropped
    gc.collect()
    assert readers() == []


def test_closing_does_not_wait_for_an_input_that_does_not_come():
    comes = threading.Event()

    def items():
        yield 1
        comes.wait()
        yield 2

    ahead = read_ahead(items())
    next(ahead)
    started = time.monotonic()
    ahead.close()
    assert time.monotonic() - started < PATIENCE_S + 0.5
    comes.set()
    for thread in readers():
        thread.join()
