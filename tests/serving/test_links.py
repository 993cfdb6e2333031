"""The physics of links (semantics §9.4): acceptance 1 of timed replay, BUG-13, E02, E13."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.errors import ArgumentError, ConfigError
from kvbench.serving.device import Device
from kvbench.serving.link import Link
from kvbench.serving.links import Transfers

GB = 10**9
S, MS, US = 10**9, 10**6, 10**3
SHARINGS = ("fair", "fifo")


def one_link(bandwidth: int, latency_ns: int = 0, sharing: str = "fair", **more: int) -> tuple[Link, Transfers]:
    """A link, and transfers that pass it alone, as path 0."""
    link = Link("link", bandwidth, latency_ns, sharing, **more)
    transfers = Transfers([link])
    assert transfers.add_path([0]) == 0
    return link, transfers


def ends(transfers: Transfers) -> list[int]:
    """The ends of all transfers under way, by owner, who are numbered from 0."""
    return [end_ns for _, end_ns in sorted(transfers.run())]


@pytest.mark.parametrize("sharing", SHARINGS)
@given(
    bandwidth=st.integers(10**3, 10**13),
    latency_ns=st.integers(0, 10**9),
    size=st.integers(0, 10**12),
    at=st.integers(0, 10**15),
)
def test_one_transfer_takes_latency_and_size_over_bandwidth(
    sharing: str, bandwidth: int, latency_ns: int, size: int, at: int
) -> None:
    """To the nanosecond, rounded up, whatever the size: there is no quantum."""
    _, transfers = one_link(bandwidth, latency_ns, sharing)
    expected_ns = latency_ns - (-size * S // bandwidth)
    assert transfers.estimate(0, size) == expected_ns
    transfers.begin(0, size, at_ns=at)
    assert ends(transfers) == [at + expected_ns]


@given(
    bandwidth=st.integers(100, 10**12),
    latency_ns=st.integers(0, 10**6),
    size=st.integers(1, 10**9),
    count=st.integers(1, 200),
)
def test_equal_transfers_that_start_together_end_together_or_in_steps(
    bandwidth: int, latency_ns: int, size: int, count: int
) -> None:
    """At latency + n · size / bandwidth where they share; each latency + size / bandwidth after the last in FIFO."""
    for sharing in SHARINGS:
        link, transfers = one_link(bandwidth, latency_ns, sharing)
        for owner in range(count):
            transfers.begin(0, size, owner=owner)
        if sharing == "fair":
            assert ends(transfers) == [latency_ns - (-count * size * S // bandwidth)] * count
        else:
            assert ends(transfers) == [n * latency_ns - (-n * size * S // bandwidth) for n in range(1, count + 1)]
        assert link.moved_bytes == count * size
        assert link.busy_ns == -(-count * size * S // bandwidth)


@pytest.mark.parametrize(
    ("sharing", "second_at", "expected"),
    [
        ("fair", 0, [2 * S, 2 * S]),
        ("fifo", 0, [1 * S, 2 * S]),
        ("fair", S // 2, [3 * S // 2, 2 * S]),
        ("fifo", S // 2, [1 * S, 2 * S]),
    ],
)
def test_two_transfers_of_10_gb_at_10_gb_per_s(sharing: str, second_at: int, expected: list[int]) -> None:
    """The example of the field's link models."""
    _, transfers = one_link(10 * GB, sharing=sharing)
    transfers.begin(0, 10 * GB)
    transfers.begin(0, 10 * GB, owner=1, at_ns=second_at)
    assert ends(transfers) == expected


@pytest.mark.parametrize(("sharing", "expected"), [("fair", [2 * S, 2 * S]), ("fifo", [1 * S, 2 * S])])
def test_E13_two_reads_of_1_gb_on_1_gb_per_s_end_as_the_link_says(sharing: str, expected: list[int]) -> None:
    _, transfers = one_link(GB, sharing=sharing)
    for owner in range(2):
        transfers.begin(0, GB, owner=owner)
    assert ends(transfers) == expected


def test_E02_transfers_end_while_nothing_else_happens() -> None:
    """The next change is known, and a look much later finds all at their own times."""
    link, transfers = one_link(GB, 5)
    for owner in range(3):
        transfers.begin(0, 1_000 * (owner + 1), owner=owner)
    assert transfers.next_change_ns == 5
    assert transfers.run_until(3600 * S) == [(0, 3_005), (1, 5_005), (2, 6_005)]
    assert transfers.next_change_ns is None
    assert (link.moved_bytes, link.busy_ns, link.in_flight) == (6_000, 6_000, 0)


def test_BUG_13a_a_thousand_small_reads_use_the_bandwidth() -> None:
    """1,000 reads of 8 MiB at 100 GB/s and 100 µs: 83.9 ms of transfer, not 100 µs."""
    link, transfers = one_link(100 * GB, 100 * US, concurrency=1000)
    for owner in range(1000):
        transfers.begin(0, 8 << 20, owner=owner)
    assert set(ends(transfers)) == {100 * US + 83_886_080}
    assert link.most_in_flight == 1000


def test_BUG_13b_a_late_arrival_gets_nothing_for_the_time_before_it_came() -> None:
    """1 GB behind 40 GB that run at 50 GB/s: half the bandwidth, from its arrival on."""
    _, transfers = one_link(50 * GB)
    transfers.begin(0, 40 * GB)
    transfers.begin(0, GB, owner=1, at_ns=400 * MS)
    assert ends(transfers) == [820 * MS, 440 * MS]


def test_BUG_13c_a_small_read_takes_no_quantum() -> None:
    """64 KiB at 50 GB/s: 1.311 µs, and with the 200 ns of the device 1.511 µs."""
    for latency_ns in (0, 200):
        _, transfers = one_link(50 * GB, latency_ns)
        transfers.begin(0, 64 << 10)
        assert ends(transfers) == [latency_ns + 1_311]


@given(
    operations=st.integers(0, 5_000),
    concurrency=st.integers(1, 300),
    size=st.integers(0, 10**10),
    limited=st.booleans(),
    sharing=st.sampled_from(SHARINGS),
)
def test_many_operations_take_what_the_device_says(
    operations: int, concurrency: int, size: int, limited: bool, sharing: str
) -> None:
    """The latency is paid once a wave, as in the figures of an order replay."""
    device = Device(
        name="drive",
        medium="nvme",
        basis="nominal",
        read_bandwidth_bytes_per_s=7 * GB,
        write_bandwidth_bytes_per_s=5 * GB,
        read_latency_ns=80 * US,
        write_latency_ns=20 * US,
        concurrent_operations=concurrency if limited else None,
    )
    link, transfers = one_link(7 * GB, 80 * US, sharing, concurrency=concurrency if limited else 0)
    size = size if operations else 0
    assert transfers.estimate(0, size, operations=operations) == device.read_ns(size, operations)
    transfers.begin(0, size, operations=operations)
    assert ends(transfers) == [device.read_ns(size, operations)]
    assert (link.operations, link.latency_sum_ns) == (operations, device.read_ns(0, operations))
    assert link.busy_ns == device.busy_read_ns(size)


def test_a_shared_store_gives_each_worker_its_own_link_up_to_its_own_bandwidth() -> None:
    """Workers at 10 GB/s each saturate a store of 80 GB/s at eight."""
    for workers in (1, 4, 8, 16):
        store = Link("store", 80 * GB, MS)
        lanes = [Link("lane", 10 * GB, 10 * US) for _ in range(workers)]
        transfers = Transfers([store, *lanes])
        for worker in range(workers):
            transfers.begin(transfers.add_path([0, 1 + worker]), 10 * GB, owner=worker)
        assert ends(transfers) == [MS + 10 * US + max(1, workers / 8) * S] * workers
        assert store.moved_bytes == workers * 10 * GB
        assert store.busy_ns == max(1, workers / 8) * S
        assert [lane.moved_bytes for lane in lanes] == [10 * GB] * workers


def test_a_serial_path_stores_and_forwards_and_a_pipelined_one_streams() -> None:
    """1 GB through 1 and 2 GB/s: the sum of both, or the slower alone; latencies add up in both."""
    links = [Link("disk", GB, 100), Link("bus", 2 * GB, 10)]
    transfers = Transfers(links)
    serial, pipelined = transfers.add_path([0, 1], pipelined=False), transfers.add_path([0, 1])
    transfers.begin(serial, GB)
    assert transfers.run_until(S + 99) == []
    assert [link.moved_bytes for link in links] == [GB - 1, 0]
    assert transfers.run() == [(0, 3 * S // 2 + 110)]
    transfers.begin(pipelined, GB)
    assert transfers.run() == [(0, 5 * S // 2 + 220)]
    assert [link.moved_bytes for link in links] == [2 * GB, 2 * GB]
    assert [link.busy_ns for link in links] == [2 * S, 3 * S // 2]


def test_bytes_arrive_at_the_end_of_the_path_at_the_rate_of_the_transfer() -> None:
    links = [Link("disk", GB, 100), Link("bus", 2 * GB, 0)]
    transfers = Transfers(links)
    handle = transfers.begin(transfers.add_path([0, 1], pipelined=False), 1_000)
    seen = []
    for at in (100, 1_100, 1_200, 1_599, 1_600):
        ended = transfers.run_until(at)
        seen.append((at, transfers.moved_bytes(handle), ended))
    assert seen == [(100, 0, []), (1_100, 0, []), (1_200, 200, []), (1_599, 998, []), (1_600, None, [(0, 1_600)])]


def test_a_full_link_takes_the_next_when_one_has_ended() -> None:
    """Two at a time: 0 and 1 share, then 1 and 2, and each pays its latency at its turn."""
    link, transfers = one_link(GB, 10, concurrency=2)
    for owner, size in enumerate((100, 200, 300)):
        transfers.begin(0, size, owner=owner)
    assert transfers.run_until(0) == []
    assert (link.in_flight, link.waiting) == (2, 1)
    # 0 ends after 2 · 100; 1 is alone for the latency of 2, then shares: 90 left, 2 · 90 more.
    assert ends(transfers) == [210, 400, 610]
    assert link.busy_ns == 600


def test_a_stopped_transfer_leaves_its_share_its_place_and_its_bytes() -> None:
    link, transfers = one_link(GB, 10, concurrency=2)
    handles = [transfers.begin(0, 1_000, owner=owner) for owner in range(4)]
    assert transfers.stop(handles[2], at_ns=5)
    assert transfers.stop(handles[0], at_ns=110)
    # Both had moved 50; 1 goes on alone, and 3 takes the free place: latency until 120, then they share.
    assert (link.moved_bytes, link.in_flight, link.waiting) == (100, 2, 0)
    assert not transfers.stop(handles[0])
    assert transfers.run() == [(1, 120 + 2 * 940), (3, 2_060)]
    assert link.moved_bytes == 2_050
    assert link.busy_ns == 2_050
    assert [transfers.moved_bytes(handle) for handle in handles] == [None] * 4


def test_one_that_has_ended_is_not_stopped_any_more() -> None:
    """Between its end and the look at it."""
    _, transfers = one_link(GB)
    handle = transfers.begin(0, 100)
    assert not transfers.stop(handle, at_ns=100)
    assert transfers.moved_bytes(handle) == 100
    assert transfers.run() == [(0, 100)]


def test_ten_thousand_wait_in_a_queue_and_go_in_their_order() -> None:
    """Also where every third gives up."""
    link, transfers = one_link(GB, 7, "fifo")
    handles = [transfers.begin(0, 1_000, owner=owner) for owner in range(10_000)]
    for handle in handles[2::3]:
        assert transfers.stop(handle)
    left = [owner for owner in range(10_000) if owner % 3 != 2]
    assert transfers.estimate(0, 500) == len(left) * 1_007 + 507
    assert transfers.run() == [(owner, 1_007 * (n + 1)) for n, owner in enumerate(left)]
    assert link.most_in_flight == 1


def test_an_estimate_holds_if_nothing_comes_or_goes() -> None:
    """A third of the bandwidth beside two; behind all of a queue."""
    _, transfers = one_link(GB, 100)
    for _ in range(2):
        transfers.begin(0, GB)
    transfers.run_until(S)
    assert transfers.estimate(0, 1_000) == 100 + 3_000
    _, transfers = one_link(GB, 100, "fifo")
    for _ in range(3):
        transfers.begin(0, 1_000)
    transfers.run_until(40)
    assert transfers.estimate(0, 500) == 60 + 1_000 + 2 * 1_100 + 600
    transfers.run_until(1_000)
    assert transfers.estimate(0, 500) == 100 + 2 * 1_100 + 600


def test_nobody_is_overtaken_on_a_path_of_full_links() -> None:
    """1 needs both links and waits for the first; 2, which needs the second alone, stays behind it."""
    transfers = Transfers([Link("a", GB, 0, "fifo"), Link("b", GB, 0, "fifo")])
    first, both, second = transfers.add_path([0]), transfers.add_path([0, 1]), transfers.add_path([1])
    for owner, path in enumerate((first, both, second)):
        transfers.begin(path, 1_000, owner=owner)
    assert ends(transfers) == [1_000, 2_000, 3_000]


@given(
    st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 3_000)), min_size=1, max_size=8),
    st.integers(0, 5_000),
    st.integers(1, 5_000),
    st.sampled_from([(0, "fair"), (2, "fair"), (0, "fifo")]),
)
def test_a_late_arrival_makes_no_earlier_one_end_sooner(
    arrivals: list[tuple[int, int]], late_by: int, size: int, how: tuple[int, str]
) -> None:
    """And is itself no faster than alone."""
    arrivals = sorted(arrivals)
    late_at = arrivals[-1][0] + late_by
    runs = []
    for late in (False, True):
        _, transfers = one_link(10**9 + 7, 50, how[1], concurrency=how[0])
        done = []
        for owner, (at, bytes_wanted) in enumerate(arrivals):
            done += transfers.run_until(at)
            transfers.begin(0, bytes_wanted, owner=owner)
        if late:
            done += transfers.run_until(late_at)
            transfers.begin(0, size, owner=len(arrivals))
        done += transfers.run()
        runs.append([end_ns for _, end_ns in sorted(done)])
    without, with_late = runs
    assert all(a <= b for a, b in zip(without, with_late, strict=False))
    assert with_late[-1] >= late_at + 50 - (-size * S // (10**9 + 7))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bandwidth_bytes_per_s": 0}, "a bandwidth of 0 bytes/s moves nothing"),
        ({"bandwidth_bytes_per_s": -1}, "a bandwidth of -1 bytes/s moves nothing"),
        ({"latency_ns": -1}, "must not be negative"),
        ({"concurrency": -1}, "must not be negative"),
        ({"sharing": "lifo"}, "'lifo' is not one of fair, fifo"),
    ],
)
def test_a_link_that_cannot_be_is_an_error(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Link(**{"name": "nic", "bandwidth_bytes_per_s": 1, "latency_ns": 0, **settings})


@pytest.mark.parametrize(
    ("path", "message"),
    [([], "not \\[\\]"), ([2], "not \\[2\\]"), ([0] * 9, "1 to 8"), ([0, 1, 0], "a\\+b\\+a passes a link twice")],
)
def test_a_path_that_cannot_be_is_an_error(path: list[int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Transfers([Link("a", 1, 0), Link("b", 1, 0)]).add_path(path)


def test_a_transfer_that_cannot_be_is_an_error() -> None:
    _, transfers = one_link(1)
    for size, operations in ((-1, 1), (2**56 + 1, 1), (1, 0), (1, -1)):
        with pytest.raises(ArgumentError, match="in at least one operation"):
            transfers.begin(0, size, operations=operations)
    with pytest.raises(ArgumentError, match="path 1 is none of the 1 paths"):
        transfers.begin(1, 1)
    transfers.run_until(10)
    with pytest.raises(ArgumentError, match="9 ns is past"):
        transfers.begin(0, 1, at_ns=9)


def test_a_transfer_that_outlasts_all_time_never_ends_and_harms_no_other() -> None:
    """292 years are the end of 64 bits of nanoseconds."""
    _, transfers = one_link(1)
    transfers.begin(0, 2**56)
    assert transfers.next_change_ns is None
    transfers.begin(0, 5, owner=1)
    assert transfers.run() == [(1, 10 * S)]
