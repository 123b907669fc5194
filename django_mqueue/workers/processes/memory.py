"""The memory of this process."""

from __future__ import annotations

import sys
from pathlib import Path

STATM = Path("/proc/self/statm")


def resident_mib() -> float:
    """Return the resident memory of this process in MiB. Without ``/proc``, return its maximum so far."""
    import resource  # Windows has no such module.

    try:
        return int(STATM.read_bytes().split()[1]) * resource.getpagesize() / 2**20
    except OSError:
        maximum = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return maximum / (2**20 if sys.platform == "darwin" else 2**10)
