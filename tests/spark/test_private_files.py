"""Local files are readable by this account only, and none is written through a symbolic link. Needs no JVM."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from .made_reports import shop

pytestmark = pytest.mark.spark

Action = Callable[[Path], object]


@pytest.fixture(autouse=True)
def open_to_all() -> Iterator[None]:
    """Set the umask to 0, so the code must set the modes itself."""
    before = os.umask(0)
    yield
    os.umask(before)


def write(folder: Path) -> None:
    from django_mqueue.spark.archives.storage import storage_at

    storage_at(folder).write("export.json", b"{}")


def create(folder: Path) -> None:
    from django_mqueue.spark.archives.storage import storage_at

    with storage_at(folder).create("messages/orders/2026-11-21/1.parquet") as stream:
        stream.write(b"rows")


def move(folder: Path) -> None:
    from django_mqueue.spark.archives.storage import storage_at

    storage = storage_at(folder)
    storage.write("one", b"rows")
    storage.move("one", "messages")


def write_below(folder: Path) -> None:
    from django_mqueue.spark.archives.storage import storage_at

    storage_at(folder).write("messages/_delta_log/0.json", b"{}")


def report_to_csv(folder: Path) -> None:
    shop().to_csv(folder / "messages")


def report_to_files(folder: Path) -> None:
    from django_mqueue.spark.cli.verbs import report

    folder.mkdir(0o700, exist_ok=True)
    arguments = Namespace(json=str(folder / "report.json"), csv=None, html=str(folder / "report.html"))
    job: Any = SimpleNamespace(arguments=arguments, tell=lambda _: None, say=lambda _: None)
    report._write(job, shop())


def modes(folder: Path) -> tuple[set[int], set[int]]:
    """Return the modes of all files, and of all folders."""
    there = [folder, *folder.rglob("*")]
    found = [
        [path.stat().st_mode & 0o777 for path in there if path.is_dir() is kind] for kind in (False, True)
    ]
    return set(found[0]), set(found[1])


@pytest.mark.parametrize("action", [write, write_below, create, move, report_to_csv, report_to_files])
def test_modes(action: Action, tmp_path: Path) -> None:
    folder = tmp_path / "to"
    if action is report_to_csv:
        folder.mkdir(0o700)
    action(folder)
    assert modes(folder) == ({0o600}, {0o700})


def test_modes_of_an_archive(tmp_path: Path) -> None:
    """The library that writes a table's log does not set its files' modes. Its folder is for this account only."""
    from .archives import batch, begin

    folder = begin(tmp_path / "to")
    batch(folder, "orders", [1])
    assert modes(folder)[1] == {0o700}
    assert {path.stat().st_mode & 0o777 for path in folder.rglob("*.parquet")} == {0o600}


@pytest.mark.parametrize(
    ("action", "link"),
    [
        (write, "export.json"),
        (create, "messages"),
        (create, "messages/orders/2026-11-21"),
        (create, "messages/orders/2026-11-21/1.parquet"),
        (move, "messages"),
        (write_below, "messages"),
        (write_below, "messages/_delta_log"),
        (report_to_csv, "messages/topics.csv"),
        (report_to_files, "report.json"),
        (report_to_files, "report.html"),
    ],
)
@pytest.mark.parametrize("there", [True, False], ids=["to what is there", "to nothing"])
def test_links_are_refused(action: Action, link: str, there: bool, tmp_path: Path) -> None:
    """A link could make the program write a file of another account, or publish a file for another program."""
    folder, elsewhere = tmp_path / "to", tmp_path / "elsewhere"
    place = folder / link
    place.parent.mkdir(parents=True)
    if there and "." in place.name:
        elsewhere.write_text("kept")
    elif there:
        elsewhere.mkdir()
    place.symlink_to(elsewhere)
    with pytest.raises(OSError, match=r"symbolic link|exists"):
        action(folder)
    assert place.is_symlink()
    assert elsewhere.exists() == there
    if there:
        assert elsewhere.read_text() == "kept" if elsewhere.is_file() else not list(elsewhere.iterdir())


def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    """The caller has chosen this folder."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "to").symlink_to(tmp_path / "disk")
    write(tmp_path / "to")
    assert (tmp_path / "disk" / "export.json").read_bytes() == b"{}"


def test_a_file_that_is_there_is_not_replaced(tmp_path: Path) -> None:
    create(tmp_path)
    with pytest.raises(FileExistsError):
        create(tmp_path)
