"""Unpack packages of Debian unstable into a private directory, without root and without changing apt's state."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from .errors import EnvironmentProblem
from .layout import LOCAL, make
from .locks import locked
from .processes import run
from .say import step

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
MIRROR = "http://deb.debian.org/debian"
"""Debian's own address, if the system names no mirror. Packages are signed, so apt usually uses plain HTTP."""


def unpacked(package: str) -> Path:
    """Return the directory that holds the package and its dependencies.

    An existing directory is used as it is: the suite is rolling, so another download would be another version.
    """
    home = LOCAL / "unpacked" / f"{package}-{_architecture()}"
    root = home / "root"
    with locked(home.with_suffix(".lock")):
        if not root.is_dir():
            step(f"downloading {package} of Debian unstable into {home.relative_to(LOCAL.parent)}")
            archives = _download(package, make(home / "apt"))
            half = home / "half"
            shutil.rmtree(half, ignore_errors=True)
            make(half)
            for archive in archives:
                run(["dpkg-deb", "--extract", archive, half])
            half.rename(root)
            shutil.rmtree(home / "apt")
    return root


def _architecture() -> str:
    for tool in ("apt-get", "dpkg", "dpkg-deb"):
        if not shutil.which(tool):
            raise EnvironmentProblem(f"{tool} is missing: MySQL is unpacked from Debian's archive with it")
    return run(["dpkg", "--print-architecture"]).strip()


def _download(package: str, state: Path) -> list[Path]:
    if not KEYRING.exists():
        raise EnvironmentProblem(f"there is no {KEYRING} to check the packages with")
    for part in ("lists/partial", "cache/archives/partial"):
        make(state / part)
    status, sources = state / "status", state / "sources.list"
    status.write_text("")
    sources.write_text(f"deb [signed-by={KEYRING}] {_mirror()} unstable main\n")
    options = {
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State": state,
        "Dir::State::lists": state / "lists",
        "Dir::State::status": status,
        "Dir::Cache": state / "cache",
        "Acquire::Languages": "none",
        "Acquire::Retries": "3",
        "APT::Sandbox::User": "root",  # apt's own user may not be able to read the directory.
        "Debug::NoLocking": "true",
    }
    configuration = state / "apt.conf"
    configuration.write_text("".join(f'{name} "{value}";\n' for name, value in options.items()))
    variables = {**os.environ, "APT_CONFIG": str(configuration)}
    run(["apt-get", "update", "--error-on=any"], env=variables)
    run(["apt-get", "install", "--yes", "--no-install-recommends", "--download-only", package], env=variables)
    return sorted((state / "cache" / "archives").glob("*.deb"))


def _mirror() -> str:
    """Return the mirror that this system already uses, if it is a Debian."""
    wanted = ["Created-By: Packages", "Origin: Debian", "Label: Debian"]
    lines = run(["apt-get", "indextargets", "--format", "$(REPO_URI)", *wanted]).split()
    return lines[0].rstrip("/") if lines else MIRROR
