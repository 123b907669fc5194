"""Start Spark, or report the missing part."""

from __future__ import annotations

import os
import socket
import sys
from importlib import invalidate_caches
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from django_mqueue.spark import launching
from django_mqueue.spark.errors import NoSpark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Old:
    __version__ = "4.1.4"


def test_without_pyspark_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "find_spec", lambda name: None)
    with pytest.raises(NoSpark, match="pyspark is not installed: install this package with its extra spark"):
        launching.session()


def test_a_pyspark_that_is_too_old_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "find_spec", lambda name: object())
    monkeypatch.setattr(launching, "import_module", lambda name: Old)
    with pytest.raises(NoSpark, match=r"PySpark is 4\.1\.4, but must be at least 4\.2 and below 5"):
        launching.check_pyspark()


@pytest.mark.spark
@pytest.mark.parametrize("ending", ["", "/;use_ssl=true", "/;token=secret;use_ssl=true"])
def test_a_server_that_does_not_answer_is_said_soon(monkeypatch: pytest.MonkeyPatch, ending: str) -> None:
    """PySpark would try for ten minutes. The error names TLS as a possible cause and shows no token."""
    monkeypatch.setattr(launching, "SERVER_TIMEOUT", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"  # This server never answers.
        with pytest.raises(NoSpark) as caught:
            launching.session(remote=f"sc://{place}{ending}")
    said = (
        f"no Spark Connect server answers at {place} within 0.5 s: check that it runs there, and that it expects a"
        " connection"
    )
    assert str(caught.value) == f"{said} {'with' if ending else 'without'} TLS (;use_ssl=true)"


@pytest.mark.spark
def test_an_empty_address_of_the_environment_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark would take it for the address of a server, and refuse the master."""
    from pyspark.sql import SparkSession

    monkeypatch.setenv("SPARK_REMOTE", "")
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", lambda self: self)
    monkeypatch.setattr(launching, "register", lambda spark: None)
    assert launching.session()


@pytest.mark.spark
def test_spark_starts_here_after_a_session_of_a_server_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark keeps its variable, and would require the address of the server."""
    from pyspark.sql import SparkSession

    mode = launching.CONNECT_MODE
    monkeypatch.setenv(mode, "1")
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", lambda self: mode not in os.environ)
    monkeypatch.setattr(launching, "register", lambda spark: None)
    assert launching.session()


def test_workers_are_of_this_interpreter_and_find_what_they_need(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    (tmp_path / "a_project").mkdir()
    (tmp_path / "a_project" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "a_project.settings")
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text("#!/bin/sh\necho 'version \"21\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    found = launching.environment()
    assert found["PYSPARK_PYTHON"] == sys.executable
    assert found["JAVA_HOME"] == str(tmp_path)
    package = str(Path(launching.__file__).parents[2])
    assert found["PYTHONPATH"].split(os.pathsep) == ["/somewhere", package, str(tmp_path)]
    (tmp_path / "a_project" / "__init__.py").unlink()
    invalidate_caches()
    assert launching.environment()["PYTHONPATH"].split(os.pathsep) == ["/somewhere", package, str(tmp_path)]


@pytest.mark.spark
def test_workers_run_the_python_of_this_process(spark: SparkSession) -> None:
    """By default workers run the ``python3`` on PATH."""
    found = spark.range(1).rdd.map(
        lambda _: (__import__("sys").executable, __import__("django_mqueue").__file__)
    )
    ((executable, package),) = found.collect()
    assert executable == sys.executable
    assert Path(package).parent == Path(launching.__file__).parents[1]


@pytest.mark.spark
def test_starting_spark_leaves_the_environment_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Java gets the variables. The process that starts it keeps its own."""
    from pyspark.sql import SparkSession

    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    seen: dict[str, str] = {}

    def start() -> None:
        seen.update(os.environ)
        raise NoSpark("it did not start")

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", lambda _: start())
    before = dict(os.environ)
    with pytest.raises(NoSpark, match="did not start"):
        launching.session("another")
    assert seen["PYSPARK_PYTHON"] == sys.executable
    assert dict(os.environ) == before


@pytest.mark.spark
def test_the_password_is_in_no_plan_and_no_configuration(
    spark: SparkSession, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Search for the option's name, because Spark does not show values of the environment."""
    from django_mqueue import publish

    publish("orders", 1)
    frame = spark.read.format("mqueue").options(**options, topic="orders").load()
    shown = frame._jdf.queryExecution().toString() + str(spark.sparkContext.getConf().getAll())
    assert "mqueue" in shown
    assert "password" not in shown.lower()
