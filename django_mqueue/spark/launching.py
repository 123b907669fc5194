"""Spark inside this process: a session with everything it needs found or said to be missing."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.db import connections

from .. import conf
from .configuration import check_configuration
from .connecting import SSL
from .errors import NoSpark
from .java import find_java
from .remote import check_client, check_server
from .suffixes import BY_DEFAULT, OPTION, suffixes_of_settings
from .write_options import ADAPTIVE_STREAMS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST, BELOW = (4, 2), (5, 0)
_INSTALL = "pip install 'django-mqueue[spark]'"


def session(
    name: str = "mqueue",
    *,
    master: str = "local[*]",
    memory: str = "1g",
    config: Mapping[str, str] | None = None,
    remote: str | None = None,
) -> SparkSession:
    """A Spark session in which ``format("mqueue")`` is known; the one that runs already, if there is one.

    ``master`` as Spark has it; ``memory`` is the driver's, and with a local master all that there is. ``config`` is
    further configuration of Spark. Finds Java, and lets Spark's Python processes be of this interpreter and find this
    package and Django's settings module. Raises ``NoSpark`` where there is no PySpark or no Java, or a wrong one, and
    ``OptionError`` for a ``config`` that would hold the database's password.

    Under ``spark-submit`` all that is decided already, but for ``config``. With ``remote``, as ``sc://host``, it is a
    session of that Spark Connect server, which has its own Java and Python processes.
    """
    spark = plain_session(name, master, memory, config or {}, remote)
    register(spark)
    return spark


def plain_session(
    name: str, master: str, memory: str, config: Mapping[str, str], remote: str | None
) -> SparkSession:
    """As ``session``, but without the format; none of Spark's Python processes has started yet."""
    check_configuration(config)
    check_pyspark()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    if remote:
        check_client()
        check_server(remote)
        builder = builder.remote(remote)
        settings = dict(config)
    elif submitted():
        settings = dict(config)
    else:
        builder = builder.master(master)
        settings = _settings(master, memory, config)
    for key, value in {ADAPTIVE_STREAMS: "false", **settings}.items():
        builder = builder.config(key, value)
    if remote or submitted():
        return _started(builder.getOrCreate)
    with _environ(environment()):
        return _started(builder.getOrCreate)


@contextmanager
def _environ(values: Mapping[str, str]) -> Iterator[None]:
    """With these variables in this process's environment. Spark hands them to Java, which keeps them."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def register(spark: SparkSession) -> None:
    """Make ``format("mqueue")`` known."""
    from .source import MQueueDataSource

    spark.dataSource.register(MQueueDataSource)


def submitted() -> bool:
    """Whether this process is the application of ``spark-submit``, which has started Java (pyspark/java_gateway.py)."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _started(start: Callable[[], Any]) -> Any:
    from pyspark.errors import PySparkRuntimeError

    try:
        return start()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise NoSpark(
            "Java ended before Spark ran; what it said is above. Is there that much memory, and is what was given as"
            " configuration right?"
        ) from error


def _settings(master: str, memory: str, config: Mapping[str, str]) -> dict[str, str]:
    local = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return {
        "spark.driver.memory": memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **(local if master.startswith("local") else {}),
        **config,
    }


def check_pyspark() -> None:
    """Raise ``NoSpark`` without PySpark, without what it needs for Arrow, or with a version that is not supported."""
    for module in ("pyspark", "pyarrow", "pandas"):
        if find_spec(module) is None:
            raise NoSpark(f"{module} is not installed: {_INSTALL}")
    version = str(import_module("pyspark").__version__)
    found = tuple(int(part) for part in version.split(".")[:2])
    if not OLDEST <= found < BELOW:
        raise NoSpark(
            f"PySpark is {version}, but must be at least {OLDEST[0]}.{OLDEST[1]} and below {BELOW[0]}: {_INSTALL}"
        )


def environment() -> dict[str, str]:
    """What the environment of Spark's processes must have; ``PYSPARK_PYTHON`` stays as it is where it is set."""
    python = os.environ.get("PYSPARK_PYTHON", sys.executable)
    places = [str(Path(__file__).resolve().parents[2])]
    if module := os.environ.get("DJANGO_SETTINGS_MODULE"):
        spec = find_spec(module.partition(".")[0])
        if spec and spec.origin:
            home = Path(spec.origin).resolve().parent
            places.append(str(home.parent if spec.submodule_search_locations else home))
    known = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    return {
        "JAVA_HOME": str(find_java().home),
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": os.environ.get("PYSPARK_DRIVER_PYTHON", python),
        "PYTHONPATH": os.pathsep.join(dict.fromkeys([*known, *places])),
    }


def settings_options(using: str | None = None) -> dict[str, str]:
    """Django's parameters of the queue's database as options of ``format("mqueue")``, without the password; and where
    dead letters are, unless that is as it is by default.

    For executors that have no Django settings. They find the password by ``MQUEUE_PASSWORD``, or by an option that
    says where it is.
    """
    found: dict[str, Any] = connections[conf.database(using)].settings_dict
    further, suffixes = found["OPTIONS"], suffixes_of_settings()
    ssl, mode = further.get("ssl"), further.get("ssl_mode")
    if ssl is not None and not isinstance(ssl, Mapping):
        ssl, mode = None, mode or ("REQUIRED" if ssl else "DISABLED")  # As mysqlclient takes it since 2.2.4.
    values = {
        "host": found["HOST"],
        "port": found["PORT"],
        "user": found["USER"],
        "database": found["NAME"],
        "unixSocket": further.get("unix_socket"),
        "defaultsFile": further.get("read_default_file"),
        "defaultsGroup": further.get("read_default_group"),
        "sslMode": mode,
        **{name: (ssl or {}).get(theirs) for name, theirs in SSL.items()},
        OPTION: None if suffixes == BY_DEFAULT else suffixes.option(),
    }
    if str(values["host"]).startswith("/"):
        values["unixSocket"] = values.pop("host")
    return {name: str(value) for name, value in values.items() if value}
