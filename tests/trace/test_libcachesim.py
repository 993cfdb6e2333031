"""libCacheSim's formats: one trace in four of them, its published miss counts, and what cannot be read."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections import OrderedDict

import numpy as np
import pyarrow as pa
import pytest

import kvbench
from kvbench.errors import ConfigError, TraceError
from kvbench.trace import import_trace
from kvbench.trace.formats import ReadLog
from kvbench.trace.formats.libcachesim_binary import OracleGeneralFormat, OracleGeneralOpNsFormat, VscsiFormat
from kvbench.trace.formats.libcachesim_text import LibCacheSimCsvFormat, LibCacheSimTextFormat
from kvbench.trace.formats.text import Lines

FORMATS = {
    "cloudPhysicsIO.oracleGeneral.bin": OracleGeneralFormat,
    "cloudPhysicsIO.csv.gz": LibCacheSimCsvFormat,
    "cloudPhysicsIO.txt.gz": LibCacheSimTextFormat,
    "cloudPhysicsIO.vscsi.gz": VscsiFormat,
}
OBJECT_LRU_MISSES = {128: 99_411, 512: 95_370, 1024: 94_816}
RECORD = OracleGeneralFormat.record


def table(path, format, log=None):
    return pa.Table.from_batches(list(format.read(Lines(path), log or ReadLog())))


@pytest.fixture(scope="module")
def cloud(shared):
    """The sample trace in all four formats."""
    return {name: table(shared / "traces/libcachesim" / name, make()) for name, make in FORMATS.items()}


def ids_of(rows):
    return rows["block_ids"].combine_chunks().flatten().to_numpy()


def test_all_forms_of_the_sample_have_the_same_accesses(cloud):
    oracle, csv, _, vscsi = (cloud[name] for name in FORMATS)
    for rows in cloud.values():
        assert rows.num_rows == 113_872
        assert len(np.unique(ids_of(rows))) == 48_974
        assert (ids_of(rows) == ids_of(oracle)).all()
    sizes = {name: rows["input_tokens"].to_numpy().astype(np.int64) for name, rows in cloud.items()}
    assert [int(size.sum()) for size in sizes.values()] == [4_368_040_448, 4_205_978_112, 113_872, 4_205_978_112]
    assert (int(sizes["cloudPhysicsIO.vscsi.gz"].min()), int(sizes["cloudPhysicsIO.vscsi.gz"].max())) == (512, 69_632)
    seconds = oracle["arrival_ns"].to_numpy()
    assert (int(seconds[0]), int(seconds[-1])) == (5_633_898 * 10**9, 5_641_098 * 10**9)
    assert (csv["arrival_ns"].to_numpy() == seconds).all()
    assert (vscsi["arrival_ns"].to_numpy() // 10**9 == seconds // 10**9).all()


def test_object_caches_miss_what_libcachesim_publishes(shared, tmp_path):
    source = shared / "traces/libcachesim/cloudPhysicsIO.txt.gz"
    report = import_trace(source, tmp_path / "t.arrow", format=LibCacheSimTextFormat())
    assert (report.rows, report.distinct_blocks) == (113_872, 48_974)
    for capacity, missed in OBJECT_LRU_MISSES.items():
        blocks = kvbench.replay(tmp_path / "t.arrow", capacity=capacity).summary["blocks"]
        assert blocks["asked"] - blocks["hit"] == missed
    small = {1: 0.976421, 20: 0.927015}
    for capacity, ratio in small.items():
        assert 1 - kvbench.replay(tmp_path / "t.arrow", capacity=capacity).rates["block"] == pytest.approx(
            ratio, abs=1e-4
        )


def bytes_cache(rows, capacity, *, moves):
    """Misses and missed bytes of a cache of ``capacity`` bytes: LRU if a hit ``moves`` its object, else FIFO."""
    cache, used, misses, missed = OrderedDict(), 0, 0, 0
    for key, size in zip(ids_of(rows).tolist(), rows["input_tokens"].to_pylist(), strict=True):
        if key in cache:
            if moves:
                cache.move_to_end(key)
            continue
        misses += 1
        missed += size
        while used + size > capacity:
            used -= cache.popitem(last=False)[1]
        cache[key] = size
        used += size
    return misses, missed


@pytest.mark.parametrize(("policy", "moves"), [("LRU", True), ("FIFO", False)])
def test_sizes_and_order_are_those_behind_the_published_misses(cloud, shared, policy, moves):
    expected = json.loads((shared / "traces/libcachesim/expected_miss.json").read_text())
    rows = cloud["cloudPhysicsIO.oracleGeneral.bin"]
    for at in (0, 4, 7):
        count, missed = bytes_cache(rows, expected["cache_sizes_bytes"][at], moves=moves)
        published = expected["policies"][policy]
        assert (count, missed) == (published["miss_cnt"][at], published["miss_byte"][at])


def test_shares_of_tokens_are_shares_of_bytes(shared, tmp_path):
    """With every object kept, only first accesses miss: 48,974 of them, and their bytes."""
    source = shared / "traces/libcachesim/cloudPhysicsIO.oracleGeneral.bin"
    report = import_trace(source, tmp_path / "t.arrow", format=OracleGeneralFormat())
    assert any("a byte of an object counts as a token" in note for note in report.notes)
    rates = kvbench.replay(tmp_path / "t.arrow", tails="keep").rates
    assert rates["token"] == pytest.approx(1 - 2_029_769_728 / 4_368_040_448, abs=1e-12)
    assert rates["block"] == pytest.approx(1 - 48_974 / 113_872, abs=1e-12)
    import_trace(source, tmp_path / "u.arrow", format=OracleGeneralFormat(sizes="ignore"))
    assert kvbench.replay(tmp_path / "u.arrow").rates["token"] == pytest.approx(1 - 48_974 / 113_872, abs=1e-12)


def test_operations_and_namespaces_become_columns(tmp_path):
    records = np.zeros(2, OracleGeneralOpNsFormat.record)
    records["time"], records["id"], records["size"] = [3, 4], [2**64 - 1, 7], [10, 20]
    records["op"], records["space"], records["next"] = [1, 3], [0, 65_535], -1
    records.tofile(tmp_path / "t.bin")
    rows = table(tmp_path / "t.bin", OracleGeneralOpNsFormat()).to_pylist()
    assert [(row["block_ids"], row["type"], row["tenant"]) for row in rows] == [
        ([2**64 - 1], "1", "0"),
        ([7], "3", "65535"),
    ]


def test_columns_of_a_table_are_said_by_number(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"10;a;5\r\n20;b;6\r\n\r\n30.5;a;7")
    settings = {"time_col": 1, "id_col": 2, "size_col": 3, "time_unit": "us", "delimiter": "semicolon", "header": False}
    rows = table(tmp_path / "t.csv", LibCacheSimCsvFormat(ids="text", **settings)).to_pylist()
    assert [(row["arrival_ns"], row["block_ids"], row["input_tokens"]) for row in rows] == [
        (10_000, [0], 5),
        (20_000, [1], 6),
        (30_500, [0], 7),
    ]
    (tmp_path / "o.csv").write_text("id\n4\n5\n")
    log = ReadLog()
    rows = table(tmp_path / "o.csv", LibCacheSimCsvFormat(time_col=0, id_col=1, size_col=0), log).to_pylist()
    assert [(row["arrival_ns"], row["block_ids"], row["input_tokens"]) for row in rows] == [(0, [4], 1), (0, [5], 1)]
    assert log.notes == ["there are no times: all accesses come at 0, in the order of the file"]
    with pytest.raises(ConfigError, match="time_col=2, id_col=2, size_col=4 name one column twice"):
        LibCacheSimCsvFormat(id_col=2)


def test_A26_ids_are_numbers_or_text_as_is_said(tmp_path):
    (tmp_path / "t.txt").write_text("12\nä b\n12\n")
    with pytest.raises(TraceError, match="row 2, id = 'ä b': is no whole number; ids=text takes ids that are text"):
        table(tmp_path / "t.txt", LibCacheSimTextFormat())
    assert ids_of(table(tmp_path / "t.txt", LibCacheSimTextFormat(ids="text"))).tolist() == [0, 1, 0]


CSV_BAD = {
    b"1,x,r,5,7": "time = 'x': is no number",
    b"1,-1,r,5,7": "time = -1.0: must not be negative",
    b"1,nan,r,5,7": "time = nan: must be a finite number",
    b"1,1,r,0,7": "size = 0: must be 1 at least",
    b"1,1,r,4294967296,7": "size = '4294967296': must be a whole number from 0 to 4294967295",
    b"1,1,r,5,18446744073709551616": "id = '18446744073709551616': must be a whole number from 0 to",
    b"1,1,r": "size = None: should stand in column 4, and the line has 3",
    b'1,1,r,5,"7': "line = .*: is no line of a CSV file",
    b"1,1,r,5,\xff": "line = .*: is not UTF-8",
}


@pytest.mark.parametrize("bad", CSV_BAD)
def test_a_bad_access_in_a_table_is_told_and_can_be_left_out(tmp_path, bad):
    (tmp_path / "t.csv").write_bytes(b"version,time,op,size,lbn\n1,1,r,5,7\n" + bad + b"\n1,2,r,5,7\n")
    with pytest.raises(TraceError, match=rf"row 3, {CSV_BAD[bad]}"):
        table(tmp_path / "t.csv", LibCacheSimCsvFormat())
    log = ReadLog(skip=True)
    assert table(tmp_path / "t.csv", LibCacheSimCsvFormat(), log)["x_row"].to_pylist() == [2, 4]
    assert log.rejected.count == 1


def test_a_bad_record_is_told_and_can_be_left_out(tmp_path):
    records = np.zeros(3, RECORD)
    records["size"] = [1, 0, 1]
    (tmp_path / "t.bin").write_bytes(records.tobytes() + b"rest")
    with pytest.raises(TraceError, match="row 2, size = 0: must be 1 at least"):
        table(tmp_path / "t.bin", OracleGeneralFormat())
    log = ReadLog(skip=True)
    assert table(tmp_path / "t.bin", OracleGeneralFormat(), log)["x_row"].to_pylist() == [1, 3]
    assert log.rejected.examples[1].endswith("row 4, record = '4 bytes': is cut off: a record has 24 bytes")
    late = np.zeros(1, VscsiFormat.record)
    late["size"], late["time"] = 1, 2**63
    late.tofile(tmp_path / "late.bin")
    with pytest.raises(TraceError, match="row 1, time = 9223372036854775808: is too large"):
        table(tmp_path / "late.bin", VscsiFormat())


def test_A27_memory_of_reading_does_not_grow_with_rows(tmp_path):
    """100,000 and a million records, 2.4 and 24 MB, compressed to next to nothing."""
    peaks = []
    for rows in (100_000, 1_000_000):
        records = np.zeros(rows, RECORD)
        records["size"], records["next"] = 1, -1
        path = tmp_path / f"{rows}.gz"
        path.write_bytes(gzip.compress(records.tobytes(), 1))
        tracemalloc.start()
        read = sum(batch.num_rows for batch in OracleGeneralFormat().read(Lines(path), ReadLog()))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert read == rows
    assert peaks[1] < 1.2 * peaks[0] + 100_000
