"""Memory of a process that reads page after page. Without a JVM."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource
from django_mqueue.spark.processes import MIB, keep_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

{first}
for _ in range(3):
    page = bytes(bytearray(4 * MIB))  # The larger it is the later glibc gives memory back: up to what was freed once.
    del page
begun = faults()
for _ in range(10):
    pages = [bytes(bytearray(size * MIB)) for size in (4, 6, 8)]
    del pages
print(faults() - begun)
"""


def faults(first: str) -> int:
    """Return the number of page faults while a process uses and frees 180 MiB in parts."""
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(first=first)], check=True, capture_output=True, text=True
    )
    return int(found.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's malloc can be told")
def test_memory_of_one_page_is_kept_for_the_next() -> None:
    kept, given = faults("keep_memory()"), faults("")
    assert kept < given / 5
