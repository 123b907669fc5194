"""Install missing system packages with apt."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .errors import CommandFailed, EnvironmentProblem
from .processes import run
from .say import complain, step


@dataclass(frozen=True)
class Need:
    """A requirement of the system, the Debian package that contains it, and a test for its presence."""

    what: str
    package: str
    is_there: Callable[[], bool]


def provide(needs: Sequence[Need]) -> None:
    """Install what is missing. None of these packages contains a service, so none is started or enabled."""
    missing = [need for need in needs if not need.is_there()]
    if not missing:
        return
    packages = sorted({need.package for need in missing})
    command = f"apt-get install --no-install-recommends {' '.join(packages)}"
    wanted = ", ".join(need.what for need in missing)
    if not shutil.which("apt-get"):
        raise EnvironmentProblem(
            f"missing: {wanted}. This system has no apt; on Debian it would be: {command}"
        )
    step(f"installing {' '.join(packages)} (missing: {wanted})")
    apt = [
        *_as_root(command),
        "env",
        "DEBIAN_FRONTEND=noninteractive",
        "apt-get",
        "-o",
        "DPkg::Lock::Timeout=300",
    ]
    try:
        run([*apt, "update"])
    except CommandFailed as error:
        complain(f"the package lists could not be renewed: {error}")
    run([*apt, "install", "--yes", "--no-install-recommends", *packages])
    still = [need.what for need in missing if not need.is_there()]
    if still:
        raise EnvironmentProblem(f"{command} went well, but these are still missing: {', '.join(still)}")


def _as_root(command: str) -> list[str]:
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo"):
        return ["sudo"] if sys.stdin.isatty() else ["sudo", "-n"]
    raise EnvironmentProblem(f"system packages are missing and there is no sudo here. As root: {command}")


def program(name: str) -> str | None:
    """Return the program's path. The search includes the directories of administrators' programs."""
    places = [os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"]
    return shutil.which(name, path=os.pathsep.join(places))
