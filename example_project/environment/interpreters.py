"""The Python interpreters of this machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SUPPORTED = ("3.13", "3.12", "3.11")
"""Newest first."""

_PROBE = """
import importlib.util, json, pathlib, sys, sysconfig
print(json.dumps({
    "version": list(sys.version_info[:3]),
    "path": getattr(sys, "_base_executable", None) or sys.executable,
    "headers": (pathlib.Path(sysconfig.get_paths()["include"]) / "Python.h").exists(),
    "venv": all(importlib.util.find_spec(name) for name in ("venv", "ensurepip")),
}))
"""


@dataclass(frozen=True)
class Interpreter:
    path: Path
    version: tuple[int, int, int]

    @property
    def minor(self) -> str:
        return f"{self.version[0]}.{self.version[1]}"

    @property
    def full(self) -> str:
        return ".".join(map(str, self.version))

    @property
    def has_headers(self) -> bool:
        found = _probe(self.path)
        return found is not None and found[1]

    @property
    def has_venv(self) -> bool:
        found = _probe(self.path)
        return found is not None and found[2]


def running() -> Interpreter:
    """Return the interpreter of this process. In a virtual environment, return its base interpreter."""
    path = getattr(sys, "_base_executable", None) or sys.executable
    return Interpreter(Path(path), sys.version_info[:3])


def newest_other(than: Interpreter) -> Interpreter | None:
    """Return the newest supported interpreter that is newer than ``than``, or None.

    The interpreter must have its headers, and must be able to make a virtual environment.
    """
    for minor in SUPPORTED:
        if minor == than.minor:
            return None
        for path in _candidates(minor):
            if (found := _probe(path)) is not None:
                interpreter, has_headers, has_venv = found
                if has_headers and has_venv and interpreter.minor == minor:
                    return interpreter
    return None


def _candidates(minor: str) -> list[Path]:
    paths = [Path(path) for path in [shutil.which(f"python{minor}")] if path]
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    return [*paths, *sorted(versions.glob(f"{minor}.*/bin/python3"), reverse=True)]


def _probe(path: Path) -> tuple[Interpreter, bool, bool] | None:
    """Return (interpreter, whether it has headers, whether it has venv). None: it does not run, as some pyenv shims."""
    try:
        done = subprocess.run([path, "-c", _PROBE], capture_output=True, text=True, timeout=60, check=True)
        said = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    major, middle, micro = said["version"]
    return Interpreter(Path(said["path"]), (major, middle, micro)), said["headers"], said["venv"]
