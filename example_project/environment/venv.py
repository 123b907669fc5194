"""Virtual environments in the clone: created once, and renewed when ``pyproject.toml`` has changed."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .errors import CommandFailed
from .interpreters import Interpreter
from .layout import LOCAL, ROOT
from .locks import locked
from .needs import for_building
from .processes import run
from .say import step
from .system_packages import provide


@dataclass(frozen=True)
class Pins:
    """Versions of requirements, narrower than the project's own."""

    name: str
    requirements: tuple[str, ...]


@dataclass(frozen=True)
class VirtualEnvironment:
    """A virtual environment for one interpreter and one Django.

    ``django``: the minor version, as in ``5.2``. ``pins``: further requirements, and a name for them.
    """

    interpreter: Interpreter
    django: str
    extras: tuple[str, ...]
    home: Path = LOCAL / "venvs"
    pins: Pins | None = None

    @property
    def name(self) -> str:
        beside = f"-{self.pins.name}" if self.pins else ""
        return f"python{self.interpreter.minor}-django{self.django}{beside}"

    @property
    def directory(self) -> Path:
        return self.home / self.name

    @property
    def python(self) -> Path:
        return self.directory / "bin" / "python"

    def ensure(self) -> Path:
        """Create or renew the environment if necessary, and return its Python."""
        with locked(self.home / f"{self.name}.lock"):
            if not self._is_current():
                self._install()
        return self.python

    @property
    def _stamp(self) -> Path:
        return self.directory / "installed"

    @property
    def _pinned(self) -> Sequence[str]:
        return self.pins.requirements if self.pins else ()

    def _wanted(self) -> str:
        """Return the content of the stamp: a digest of what must be installed, and the extras."""
        project = (ROOT / "pyproject.toml").read_bytes()
        origin = f"{self.interpreter.path} {self.interpreter.full} {self.django} {self._pinned} {ROOT}"
        return f"{hashlib.sha256(project + origin.encode()).hexdigest()} {' '.join(sorted(self.extras))}"

    def _is_current(self) -> bool:
        """Return whether the environment is up to date. It may have additional extras."""
        if not self._stamp.exists() or not self.python.exists():
            return False
        digest, *extras = self._stamp.read_text().split()
        return digest == self._wanted().split()[0] and set(self.extras) <= set(extras)

    def _install(self) -> None:
        provide(for_building(self.interpreter))
        extras = self._extras_with_earlier()
        what = ", ".join([*extras, f"Django {self.django}", *self._pinned])
        step(f"installing into {self.directory.relative_to(ROOT)}: {what}")
        self._stamp.unlink(missing_ok=True)
        if not self._has_pip():
            shutil.rmtree(self.directory, ignore_errors=True)
            run([self.interpreter.path, "-m", "venv", self.directory])
        pip: list[str | Path] = [
            self.python,
            "-m",
            "pip",
            "install",
            "--disable-pip-version-check",
            "--no-input",
            "--quiet",
        ]
        project = f"{ROOT}[{','.join(extras)}]" if extras else ROOT
        run([*pip, "--editable", project, f"Django~={self.django}.0", *self._pinned])
        for archive in self.directory.glob("lib/python*/site-packages/pyspark/python/lib/pyspark.zip"):
            # Spark lets its Python processes import from here, and each would compile the modules again. A streaming
            # worker that needs more than ten seconds to start fails. Without it they import the installed package.
            archive.unlink()
        self._stamp.write_text(self._wanted().split()[0] + " " + " ".join(extras))

    def _extras_with_earlier(self) -> list[str]:
        """Return the extras to install, including earlier ones.

        The example's launcher must not remove the extras of the tests' environment.
        """
        earlier = self._stamp.read_text().split()[1:] if self._stamp.exists() else []
        return sorted({*self.extras, *earlier})

    def _has_pip(self) -> bool:
        """Return False if the creation was interrupted, or if the interpreter is gone or has another version."""
        try:
            version = run([self.python, "-c", "import pip, sys; print('%d.%d.%d' % sys.version_info[:3])"])
        except CommandFailed:
            return False
        return version.strip() == self.interpreter.full
