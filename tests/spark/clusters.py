"""Run a standalone cluster and a Spark Connect server as processes. They are ended by their process ids."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pyspark

from django_mqueue.spark.java import find_java
from example_project.environment.lineage import die_with_parent
from tests.support.processes import ROOT, wait_until
from tests.support.waiting import SPARK_PATIENCE

from .commands import started_by

HOME = Path(pyspark.__file__).parent
FAST = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class Service:
    """A class of Spark's as a process that leads its own session. All its child processes belong to that session."""

    def __init__(self, program: str, arguments: tuple[str, ...], environment: dict[str, str]) -> None:
        self._log = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
        self.process = subprocess.Popen(
            [str(HOME / "bin" / program), *arguments],
            cwd=ROOT,
            env={
                **{name: value for name, value in os.environ.items() if not name.startswith("DJANGO_")},
                "SPARK_HOME": str(HOME),
                "JAVA_HOME": str(find_java().home),
                "PYSPARK_PYTHON": sys.executable,
                "PYTHONPATH": str(ROOT),
                "SPARK_DAEMON_JAVA_OPTS": FAST,
                "SPARK_PUBLIC_DNS": "127.0.0.1",
                **environment,
            },
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=die_with_parent(signal.SIGKILL),
        )

    @property
    def output(self) -> str:
        self._log.flush()
        return Path(f"/proc/self/fd/{self._log.fileno()}").read_text(encoding="utf-8", errors="replace")

    def says(self, pattern: str) -> str:
        """Wait until the output matches the pattern, and return the first group."""

        def found() -> re.Match[str] | None:
            assert self.process.poll() is None, self.output[-4000:]
            return re.search(pattern, self.output)

        return wait_until(found, f"{pattern} is said", seconds=SPARK_PATIENCE)[1]

    def close(self) -> None:
        for pid in started_by(self.process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(SPARK_PATIENCE)
        self._log.close()


@contextmanager
def service(program: str, *arguments: str, **environment: str) -> Iterator[Service]:
    started = Service(program, arguments, environment)
    try:
        yield started
    except BaseException as error:
        error.add_note(started.output[-3000:])
        raise
    finally:
        started.close()


@contextmanager
def standalone(work: Path, environment: dict[str, str]) -> Iterator[tuple[str, list[Service]]]:
    """Yield a master's URL and its two workers, each with one core, and on a host of its own as far as Spark can tell.

    ``environment``: variables of the workers and their executors.
    """
    environment = {**environment, "SPARK_DAEMON_MEMORY": "200m"}
    ports = ("--port", "0", "--webui-port", "0")
    with ExitStack() as stack:
        master = stack.enter_context(
            service(
                "spark-class",
                "org.apache.spark.deploy.master.Master",
                "--host",
                "127.0.0.1",
                *ports,
                SPARK_DAEMON_MEMORY="200m",
            )
        )
        url = master.says(r"Starting Spark master at (spark://\S+)")
        crew = [
            stack.enter_context(
                service(
                    "spark-class", "org.apache.spark.deploy.worker.Worker", "--host", f"127.0.0.{number + 1}", *ports,
                    "--cores", "1", "--memory", "700m", "--work-dir", str(work / f"worker-{number}"), url,
                    **environment, SPARK_LOCAL_IP=f"127.0.0.{number + 1}", SPARK_PUBLIC_DNS=f"127.0.0.{number + 1}",
                )
            )
            for number in range(2)
        ]  # fmt: skip
        for each in crew:
            each.says(r"(Successfully registered) with master")
        yield url, crew


@contextmanager
def connect_server(**environment: str) -> Iterator[str]:
    """Yield the URL of a Spark Connect server. ``environment``: variables of the server and its executors."""
    settings = (
        "spark.connect.grpc.binding.port=0", "spark.ui.enabled=false", f"spark.driver.extraJavaOptions={FAST}",
        "spark.driver.host=127.0.0.1", "spark.driver.bindAddress=127.0.0.1",
    )  # fmt: skip
    with service(
        "spark-submit", "--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[2]",
        "--driver-memory", "600m", *(word for each in settings for word in ("--conf", each)), **environment,
    ) as server:  # fmt: skip
        port = server.says(r"SparkConnectService' on port (\d+)")
        server.says(r"(Spark Connect server started)")
        yield f"sc://127.0.0.1:{port}"
