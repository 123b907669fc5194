"""``promtool``, which checks rules of Prometheus: of the system, or unpacked from Debian's package into ``.local``."""

from __future__ import annotations

import shutil
from pathlib import Path

from example_project.environment.layout import LOCAL, make
from example_project.environment.locks import locked
from example_project.environment.processes import run
from example_project.environment.say import step


def promtool() -> Path:
    """Return the path of the program. The package is only downloaded: it contains a service, and needs no other one."""
    if installed := shutil.which("promtool"):
        return Path(installed)
    home = LOCAL / "unpacked" / "promtool"
    with locked(home.with_suffix(".lock")):
        program = home / "root" / "usr" / "bin" / "promtool"
        if not program.exists():
            step(f"downloading promtool into {home.relative_to(LOCAL.parent)}")
            shutil.rmtree(home, ignore_errors=True)
            run(["apt-get", "update"])
            run(["apt-get", "download", "prometheus"], cwd=make(home))
            (archive,) = home.glob("prometheus_*.deb")
            run(["dpkg-deb", "--extract", archive, make(home / "half")])
            (home / "half").rename(home / "root")
            archive.unlink()
    return program
