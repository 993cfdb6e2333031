"""Files appear whole or not at all, and nothing but a regular file is ever replaced."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from kvbench.atomic import atomic_path, atomic_paths, same_file
from kvbench.errors import OutputError


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_a_file_takes_its_name_at_the_end(tmp_path):
    with atomic_path(tmp_path / "t") as temporary:
        temporary.write_text("new")
        assert not (tmp_path / "t").exists()
    assert (tmp_path / "t").read_text() == "new"
    assert names(tmp_path) == ["t"]


def test_several_files_take_their_names_together_or_not_at_all(tmp_path):
    def write(fails: bool) -> None:
        with atomic_paths([tmp_path / "a", tmp_path / "b"]) as temporaries:
            for temporary in temporaries:
                temporary.write_text("new")
            if fails:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(fails=True)
    assert names(tmp_path) == []
    write(fails=False)
    assert names(tmp_path) == ["a", "b"]


def test_what_appears_meanwhile_is_kept_and_no_other_file_appears(tmp_path):
    with pytest.raises(OutputError, match="b exists"), atomic_paths([tmp_path / "a", tmp_path / "b"]):
        (tmp_path / "b").write_text("another's")
    assert names(tmp_path) == ["b"]
    assert (tmp_path / "b").read_text() == "another's"


@pytest.mark.parametrize("force", [True, False])
def test_a_device_a_pipe_and_a_socket_are_never_replaced(tmp_path, force, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("socket")
        for path in ("pipe", "socket", "/dev/null"):
            with pytest.raises(OutputError, match=f"{path} is no regular file"), atomic_path(path, force):
                pass
    assert names(tmp_path) == ["pipe", "socket"]


def test_a_symbolic_link_stays_and_its_file_is_written(tmp_path):
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "t", tmp_path / "link"
    link.symlink_to(target)
    for text, force in (("first", False), ("second", True)):
        with atomic_path(link, force) as temporary:
            temporary.write_text(text)
        assert link.is_symlink()
        assert target.read_text() == text
    with pytest.raises(OutputError, match="link exists"), atomic_path(link):
        pass
    assert names(tmp_path / "folder") == ["t"]


def test_names_may_be_as_long_as_the_system_allows(tmp_path):
    longest = tmp_path / ("x" * 255)
    with atomic_path(longest) as temporary:
        temporary.write_text("new")
    assert longest.read_text() == "new"
    with pytest.raises(OutputError, match="cannot be written: File name too long"), atomic_path(tmp_path / ("x" * 300)):
        pass
    with pytest.raises(OutputError, match="cannot be written: embedded null byte"), atomic_path(tmp_path / "a\0b"):
        pass


def test_one_file_is_known_under_all_its_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a").touch()
    Path("link").symlink_to("a")
    os.link("a", "hard")
    for other in ("./a", tmp_path / "a", "link", "hard", f"../{tmp_path.name}/a"):
        assert same_file("a", other)
    assert same_file("new", "./new")
    assert not same_file("a", "new")
    assert not same_file("a", "b\0")
