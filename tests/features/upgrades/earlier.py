"""The code of an earlier commit, in a directory of its own, for processes of the tests."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.processes import FAST, ROOT, Worker, Workers, database_url

SETTINGS = "tests.features.upgrades.settings"


@dataclass(frozen=True)
class Version:
    """``commit``: the last one before a migration. ``migration``: the newest that it has."""

    commit: str
    migration: str


BEFORE_RESULTS = Version("abfa6d44f9c3061b1f1eb25067cef3cb25199a91", "0006_session_locks")
BEFORE_STOPS = Version("7673a64c97455c65b420a4b6d3ada093821673a5", "0007_results")
BEFORE_INDEXES = Version("03ba62633a9c5e2282473526bdd3b17b501e0835", "0009_operate")
"""The versions of the tests. Add one with each migration, and from the first release on, its tag."""


def checked_out(version: Version, directory: Path) -> Path:
    """Put the package of a commit into a directory, beside the tests of now. Skip the test if git lacks the commit."""
    found = subprocess.run(
        ["git", "-C", str(ROOT), "archive", version.commit, "django_mqueue"], capture_output=True
    )
    if found.returncode:
        pytest.skip(
            f"no commit {version.commit[:8]} here (a shallow clone?): {found.stderr.decode().strip()}"
        )
    with tarfile.open(fileobj=io.BytesIO(found.stdout)) as archive:
        archive.extractall(directory, filter="data")
    for name in ("tests", "example_project"):
        (directory / name).symlink_to(ROOT / name)
    return directory


class Processes(Workers):
    """Processes with the code of ``directory``, on the database ``using``."""

    def __init__(self, directory: Path, using: str) -> None:
        super().__init__(FAST, using)
        self.directory = directory

    def run(self, program: tuple[str, ...], *arguments: str, **environment: str | None) -> Worker:
        own = {"DATABASE_URL": database_url(self.using), "TEST_MQUEUE": json.dumps(self.mqueue)}
        worker = Worker(arguments, {**own, "DJANGO_SETTINGS_MODULE": SETTINGS}, program, cwd=self.directory)
        self.all.append(worker)
        return worker

    def __enter__(self) -> Processes:
        super().__enter__()
        return self

    def publish(self, name: str, *topics: str) -> Worker:
        """Start a publisher of a steady stream."""
        return self.run(("tests.features.upgrades.publisher",), name, *topics)
