"""What a sweep knows of earlier runs: which cells are the same, and who may write them down."""

import fcntl
from pathlib import Path

import pytest

from kvbench.errors import OutputError
from tests.sweeps.runs import CHAT, Told, run


def test_what_is_known_is_the_content_of_files_and_not_their_names(tmp_path):
    def digest(trace, **settings):
        return run(trace=str(trace), **settings).cells[0].config_hash

    copy, other = tmp_path / "copy.arrow", tmp_path / "other.arrow"
    copy.write_bytes(Path(CHAT).read_bytes())
    other.write_bytes(Path("traces/zipf.arrow").read_bytes())
    assert digest(CHAT, capacity=9) == digest(copy, capacity="9")
    assert digest(CHAT, capacity=9) != digest(CHAT, capacity=10)
    assert digest(CHAT, capacity=9) != digest(other, capacity=9)
    plan, same = tmp_path / "faults.toml", tmp_path / "same.toml"
    for path in (plan, same):
        path.write_text('[[faults]]\ntier = "gpu"\nput = 0.5\n')
    tiers = {"tiers": ["gpu,capacity=100"]}
    first = digest(CHAT, faults=str(plan), **tiers)
    assert first == digest(CHAT, faults=str(same), **tiers)
    same.write_text('[[faults]]\ntier = "gpu"\nput = 0.25\n')
    assert first != digest(CHAT, faults=str(same), **tiers)


def test_a_table_of_measured_times_that_has_changed_is_another_cell(tmp_path):
    times, output = tmp_path / "times.csv", str(tmp_path / "sweep.parquet")
    vary = {"compute": {"name": "table", "prefill": str(times)}, "capacity": "100,200"}
    times.write_text("new_tokens,ms\n1,1\n100000,50\n")
    run(vary, output=output)
    times.write_text("new_tokens,ms\n1,1\n100000,100\n")
    with pytest.raises(OutputError, match="has 2 cells not of this sweep"):
        run(vary, output=output)


def test_two_sweeps_do_not_write_one_file(tmp_path):
    output = str(tmp_path / "sweep.parquet")

    class Nested(Told):
        def run(self, tasks):
            with pytest.raises(OutputError, match="in use: another sweep"):
                run({"policy": "arc"}, capacity=100, output=output)
            yield from super().run(tasks)

    run({"policy": "arc"}, capacity=100, output=output, executor=Nested())


def test_a_journal_that_was_removed_while_it_was_opened_is_opened_anew(tmp_path, monkeypatch):
    output = str(tmp_path / "sweep.parquet")
    path, lock, calls = Path(f"{output}.journal"), fcntl.flock, []

    def ended_just_now(file, how):
        calls.append(how)
        if len(calls) == 1:
            path.unlink()
        lock(file, how)

    monkeypatch.setattr("fcntl.flock", ended_just_now)
    with pytest.raises(KeyboardInterrupt):
        run({"policy": "arc,sieve"}, capacity=100, output=output, executor=Told(stop_after=1))
    assert (len(calls), path.read_bytes().count(b"\n")) == (2, 1)


def test_a_forced_sweep_that_was_cut_short_says_what_goes_on_from_there(tmp_path):
    output = tmp_path / "sweep.parquet"
    notes = []
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt) as ended:
            run({"policy": "arc,sieve"}, capacity=100, output=str(output), force=True, executor=Told(stop_after=1))
        notes += ended.value.__notes__
        output.write_bytes(Path(CHAT).read_bytes())
    kept = f"1 cell kept in {output}.journal; "
    assert notes == [
        f"{kept}the same command without --force goes on from there",
        f"{kept}to go on from there, remove {output} and leave out --force",
    ]
    output.unlink()
    rest = Told()
    run({"policy": "arc,sieve"}, capacity=100, output=str(output), executor=rest)
    assert rest.ran == [1]
