"""Read the files of ``docs/deploy``, and start what they describe as processes on the test database."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from configparser import ConfigParser
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.support.processes import FAST, ROOT, Worker, database_url

DEPLOY = ROOT / "docs" / "deploy"
PYTHON = "/srv/shop/venv/bin/python"
ENVIRONMENT_FILE = "/etc/mqueue/mqueue.env"
DEFAULT_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
}
"""What each service of systemd, and each container, has at least."""


def of_the_test(mqueue: Mapping[str, Any] = FAST) -> dict[str, str]:
    """Return the variables that a project would set for its settings."""
    return {
        "DJANGO_SETTINGS_MODULE": "tests.support.worker_settings",
        "DATABASE_URL": database_url(),
        "TEST_MQUEUE": json.dumps(dict(mqueue)),
    }


class Unit:
    """A unit of systemd. ``instance`` is the text after ``@`` of its name."""

    def __init__(self, name: str, instance: str = "") -> None:
        self.instance = instance
        self.path = DEPLOY / "systemd" / name
        self.sections = ConfigParser(strict=False, delimiters="=", comment_prefixes="#", interpolation=None)
        self.sections.optionxform = str  # type: ignore[assignment,method-assign]
        self.sections.read(self.path)
        self.service: Mapping[str, str] = self.sections["Service"] if "Service" in self.sections else {}  # noqa: SIM401

    def words(self, option: str, **variables: str) -> list[str]:
        """Return the words of a command line. Specifiers and ``$VARIABLES`` are replaced."""
        line = self.service[option].replace("%H", "host").replace("%i", self.instance)
        assert "%" not in line, f"a specifier that this reader does not know: {line}"
        return [variables[word[1:]] if word.startswith("$") else word for word in shlex.split(line)]

    def start(self, *more: str, **replaced: str) -> Worker:
        """Start ``ExecStart`` with the environment of the unit, and nothing else of this process's environment.

        ``replaced``: values of options, by their names without hyphens. ``more``: further arguments.
        """
        assert self.service["EnvironmentFile"] == ENVIRONMENT_FILE
        own = dict(word.split("=", 1) for word in shlex.split(self.service["Environment"]))
        python, program, *arguments = self.words("ExecStart")
        assert python == PYTHON
        return _start(program, with_values(arguments, replaced) + list(more), own)


class Container:
    """The only container of a Kubernetes workload. ``variables``: what Kubernetes fills in, by its field."""

    def __init__(self, workload: Mapping[str, Any], **fields: str) -> None:
        template = workload["spec"].get("template") or workload["spec"]["jobTemplate"]["spec"]["template"]
        self.pod: dict[str, Any] = template["spec"]
        (self.spec,) = self.pod["containers"]
        self.environment = {
            one["name"]: one["value"] if "value" in one else fields[one["valueFrom"]["fieldRef"]["fieldPath"]]
            for one in self.spec["env"]
        }

    def words(self, words: Sequence[str]) -> list[str]:
        """Replace ``$(NAME)`` as Kubernetes does."""
        return [re.sub(r"\$\((\w+)\)", lambda found: self.environment[found[1]], word) for word in words]

    def start(self, *more: str, **replaced: str) -> Worker:
        """Start the container's command with the container's environment."""
        python, program, *arguments = self.words([*self.spec["command"], *self.spec["args"]])
        assert python == "python"
        return _start(program, with_values(arguments, replaced) + list(more), self.environment)

    @contextmanager
    def probe(self, name: str, **replaced: str) -> Iterator[Worker]:
        """Run a probe's command in the container's environment."""
        python, program, *arguments = self.words(self.spec[name]["exec"]["command"])
        assert python == "python"
        worker = _start(program, with_values(arguments, replaced), self.environment)
        try:
            yield worker
        finally:
            worker.close()

    def is_healthy(self, name: str, **replaced: str) -> bool:
        """Return True if the probe succeeds."""
        with self.probe(name, **replaced) as probe:
            code = probe.wait()
            assert code in (0, 1), probe.output()
            return code == 0


def manifests(name: str) -> dict[str, dict[str, Any]]:
    """Return the objects of a file by their kinds."""
    found = list(yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text()))
    return {one["kind"]: one for one in found}


def with_values(words: Sequence[str], replaced: Mapping[str, str]) -> list[str]:
    """Replace the values of options. ``replaced`` names each without its hyphens."""
    result = list(words)
    for name, value in replaced.items():
        result[result.index(f"--{name.replace('_', '-')}") + 1] = value
    return result


def _start(program: str, arguments: Sequence[str], environment: Mapping[str, str]) -> Worker:
    assert program == "manage.py"
    return Worker(
        tuple(arguments),
        {**environment, **of_the_test()},
        (program,),
        inherited=DEFAULT_ENVIRONMENT,
        cwd=ROOT,
    )


def all_files() -> list[Path]:
    return sorted(path for path in DEPLOY.rglob("*") if path.is_file())
