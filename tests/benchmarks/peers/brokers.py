"""Private Redis and RabbitMQ servers, from the packages of this Debian. They end with the block that starts them.

The packages are downloaded and unpacked below ``.local``, unless the system has the program. So nothing needs root, and
no service starts.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from example_project.environment.errors import EnvironmentProblem, ServerFailed
from example_project.environment.layout import LOCAL, make
from example_project.environment.lineage import die_with_parent
from example_project.environment.locks import locked
from example_project.environment.processes import run
from example_project.environment.say import step
from example_project.environment.scratch import scratch

START, STOP = 90.0, 30.0
"""Seconds in which a broker must start, and stop."""
HOST = "127.0.0.1"


@dataclass(frozen=True)
class Broker:
    """``pid``: the leader of a session with the processes of the broker, except RabbitMQ's ``epmd``."""

    url: str
    version: str
    pid: int


@contextmanager
def redis(*options: str) -> Iterator[Broker]:
    """Run Redis with Redis' default settings, changed by ``options``."""
    root = _root("redis-server", "usr/bin/redis-server")
    port = free_port()
    libraries = ":".join(map(str, (root / "usr" / "lib").glob("*-linux-gnu*")))
    with scratch("redis") as place, ExitStack() as stack:
        program = str(root / "usr/bin/redis-server")
        arguments = [program, "--port", str(port), "--bind", HOST, "--dir", str(place.directory), *options]
        variables = {**os.environ, "LD_LIBRARY_PATH": libraries} if root != Path("/") else os.environ
        version = subprocess.run(
            [program, "--version"], env=variables, capture_output=True, text=True, check=True
        )
        process = _started(stack, arguments, variables, place.directory)
        _wait_for(process, port)
        yield Broker(f"redis://{HOST}:{port}/0", version.stdout.split("v=")[1].split()[0], process.pid)


@contextmanager
def rabbitmq() -> Iterator[Broker]:
    """Run RabbitMQ with its default settings, and with an ``epmd`` (Erlang's name server) of its own."""
    root = _root("rabbitmq-server", "usr/lib/rabbitmq")
    erlang, home = root / "usr/lib/erlang", next((root / "usr/lib/rabbitmq/lib").glob("rabbitmq_server-*"))
    binaries = next(erlang.glob("erts-*")) / "bin"
    port, names = free_port(), free_port()
    with scratch("rabbitmq") as place, ExitStack() as stack:
        _write_erl(make(place.directory / "bin") / "erl", erlang, binaries)
        variables = {
            **os.environ,
            "ERL_EPMD_ADDRESS": HOST,
            "ERL_EPMD_PORT": str(names),
            "HOME": str(place.directory),
            "PATH": f"{place.directory / 'bin'}:{binaries}:{os.environ['PATH']}",
            "RABBITMQ_CONF_ENV_FILE": str(place.directory / "none"),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(place.directory / "plugins"),
            "RABBITMQ_LOG_BASE": str(place.directory / "logs"),
            "RABBITMQ_MNESIA_BASE": str(place.data),
            "RABBITMQ_NODENAME": f"bench-{os.getpid()}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": HOST,
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_PID_FILE": str(place.directory / "pid"),
        }
        _started(stack, [str(binaries / "epmd"), "-port", str(names)], variables, place.directory)
        process = _started(stack, [str(home / "sbin/rabbitmq-server")], variables, place.directory)
        _wait_for(process, port)
        yield Broker(f"amqp://guest:guest@{HOST}:{port}//", home.name.partition("-")[2], process.pid)


BROKERS: Mapping[str, Callable[[], AbstractContextManager[Broker]]] = {
    "redis": redis,
    "redis-always": lambda: redis("--appendonly", "yes", "--appendfsync", "always"),
    "rabbitmq": rabbitmq,
}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return int(listener.getsockname()[1])


def _root(package: str, program: str) -> Path:
    """Return the directory in which ``program`` is: ``/``, or the unpacked package with what it needs."""
    if Path("/", program).exists():
        return Path("/")
    home = LOCAL / "unpacked" / package
    with locked(home.with_suffix(".lock")):
        if not (home / "root").is_dir():
            if not shutil.which("apt-get"):
                raise EnvironmentProblem(f"there is no {package} here, and no apt-get to download it")
            step(f"downloading {package} into {home.relative_to(LOCAL.parent)}")
            archives = make(home / "archives" / "partial").parent
            options = [f"Dir::Cache::archives={archives}", "Debug::NoLocking=true", "Acquire::Retries=3"]
            flags = ["--yes", "--no-install-recommends", "--download-only"]
            run(
                [
                    "apt-get",
                    *(word for option in options for word in ("-o", option)),
                    "install",
                    *flags,
                    package,
                ]
            )
            half = home / "half"
            shutil.rmtree(half, ignore_errors=True)
            for archive in sorted(archives.glob("*.deb")):
                run(["dpkg-deb", "--extract", archive, make(half)])
            half.rename(home / "root")
            shutil.rmtree(archives)
    return home / "root"


def _write_erl(script: Path, erlang: Path, binaries: Path) -> None:
    """Write Erlang's start script for the directory where it is: Debian's has ``/usr/lib/erlang``."""
    script.write_text(
        f"#!/bin/sh\nexport ROOTDIR={erlang} BINDIR={binaries} EMU=beam PROGNAME=erl\n"
        f'exec {binaries}/erlexec "$@"\n'
    )
    script.chmod(0o755)


def _started(
    stack: ExitStack, arguments: Sequence[str], variables: Mapping[str, str], directory: Path
) -> subprocess.Popen[bytes]:
    """Start a program that ends with the stack, at the latest with this process."""
    log = stack.enter_context((directory / "log").open("ab"))
    process = subprocess.Popen(
        arguments,
        cwd=directory,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        preexec_fn=die_with_parent(signal.SIGKILL),
    )
    stack.callback(stop_session, process, STOP)
    return process


def stop_session(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Send SIGTERM to a leader of a session, and SIGKILL to what is left of its process group after ``seconds``."""
    process.terminate()
    try:
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_for(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + START
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection((HOST, port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    name = Path(str(process.args[0])).name  # type: ignore[index]
    state = "is still starting" if process.poll() is None else f"has ended with {process.returncode}"
    raise ServerFailed(
        f"{name} {state}; it must accept connections within {START:g} s. Start it by hand to see why"
    )
