"""Common parts of the benchmarks: install what is missing, start a private server, print the time."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.benchmarks.served import Served

JAR = Path("/usr/share/java/mariadb-java-client.jar")
"""MariaDB's connector."""

_begun = time.monotonic()


def say(text: str) -> None:
    print(f"{time.monotonic() - _begun:6.0f} s  {text}", flush=True)


def parser(name: str, description: str) -> argparse.ArgumentParser:
    """Return a parser for ``python3 -m tests.benchmarks.NAME``, with the common options."""
    found = argparse.ArgumentParser(
        prog=f"python3 -m tests.benchmarks.{name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument(
        "--server", choices=["mariadb", "mysql"], default="mariadb", help="which private server"
    )
    found.add_argument("--memory", default="2g", help="of the JVM (default: %(default)s)")
    return found


def count(parser: argparse.ArgumentParser, name: str, default: int, help: str) -> None:
    """Add an option whose value is a number."""
    parser.add_argument(name, type=int, metavar="N", default=default, help=f"{help} (default: %(default)s)")


@contextmanager
def staged(kind: str) -> Iterator[tuple[Served, Path]]:
    """Start a private server with the queue's tables, which Django's settings name. Yield it and a folder."""
    from tests.benchmarks.served import served

    with served(kind) as server, TemporaryDirectory(prefix="mqueue-benchmark-") as folder:
        say(f"{server.kind} {server.version}")
        os.environ |= {
            "DATABASE_URL": server.url,
            "DJANGO_SETTINGS_MODULE": "tests.settings",
            "MQUEUE_PASSWORD": server.password,
        }
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        yield server, Path(folder)


def provide_connector() -> None:
    from example_project.environment.system_packages import Need, provide

    provide([Need("MariaDB's connector for JDBC", "libmariadb-java", JAR.exists)])


def begin(name: str, parse: Callable[[list[str]], object], main: Callable[[list[str]], int]) -> None:
    """Run a benchmark, in a separate environment if this one lacks a package."""
    from example_project.environment.launch import launch

    def elsewhere(arguments: list[str]) -> int:
        from example_project.environment.interpreters import running
        from example_project.environment.layout import LOCAL
        from example_project.environment.processes import forward
        from example_project.environment.venv import VirtualEnvironment

        home = LOCAL / "spark-venvs"
        python = VirtualEnvironment(running(), "5.2", ("spark", "test"), home).ensure()
        return forward([python, "-m", f"tests.benchmarks.{name}", *arguments], env=dict(os.environ))

    if {"-h", "--help"} & set(sys.argv[1:]):
        parse(sys.argv[1:])
    has_all = all(map(importlib.util.find_spec, ("django", "MySQLdb", "environ", "pyspark")))
    launch(main if has_all else elsewhere)
