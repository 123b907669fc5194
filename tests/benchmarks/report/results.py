"""The results of the speed benchmark: one JSON file that each run updates."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from example_project.environment.layout import ROOT
from tests.benchmarks.speed.figures import Figures, medians

BROKERS = "brokers"
"""In place of a server: the peers that store messages in a broker."""
Section = dict[str, "Scenario"]


@dataclass
class Scenario:
    """The figures of each round. ``size``: the part of the usual number of messages. ``commit``: the measured code.

    ``processor``: the machine's. Scenarios of one report may be measured on different machines.
    """

    rounds: list[Figures] = field(default_factory=list)
    size: float = 1.0
    measured: str = ""
    commit: str = ""
    processor: str = ""

    @property
    def median(self) -> Figures:
        return medians(self.rounds)


@dataclass
class Results:
    """``servers`` and ``sections`` by kind of server. A section has the scenarios by name, in the order of the run."""

    machine: dict[str, str] = field(default_factory=dict)
    servers: dict[str, str] = field(default_factory=dict)
    sections: dict[str, Section] = field(default_factory=dict)
    profiles: dict[str, dict[str, list[tuple[str, str, float]]]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, file: Path) -> Results:
        """Return the results in a file; empty if there is none."""
        if not file.exists():
            return cls()
        found: dict[str, Any] = json.loads(file.read_text())
        sections = {
            kind: {name: Scenario(**one) for name, one in section.items()}
            for kind, section in found.pop("sections").items()
        }
        return cls(**found, sections=sections)

    def begin(self, kind: str, name: str, size: float) -> None:
        """Delete the earlier rounds of a scenario. The next ``add`` stores the first new round."""
        now = datetime.now(UTC).date().isoformat()
        self.sections.setdefault(kind, {})[name] = Scenario(
            size=size, measured=now, commit=commit(), processor=processor()
        )

    def add(self, kind: str, name: str, figures: Figures) -> None:
        self.sections[kind][name].rounds.append(figures)

    def measured(self, kind: str) -> dict[str, Figures]:
        """Return the medians of each scenario that has been measured."""
        return {name: one.median for name, one in self.sections.get(kind, {}).items() if one.rounds}

    def save(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        half = file.with_suffix(".half")
        half.write_text(json.dumps(asdict(self), indent=1) + "\n")
        half.replace(file)


def machine() -> dict[str, str]:
    """Return the hardware and the versions that the figures depend on, without the host name."""
    import django

    total = next(int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal"))
    return {
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{total / (1 << 20):.0f} GiB",
        "system": platform.freedesktop_os_release().get("PRETTY_NAME", platform.system()),
        "python": platform.python_version(),
        "django": django.get_version(),
    }


def processor() -> str:
    """Return the name of the machine's processor."""
    names = (
        line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")
    )
    return next(names, "") or platform.machine()


def commit() -> str:
    """Return the commit of the measured code; ``?`` if this is no clone."""
    git = ["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"]
    try:
        return subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "?"


def _lines(file: str) -> list[str]:
    return Path(file).read_text().splitlines()
