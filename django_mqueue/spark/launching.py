"""Start a Spark session in this process. Find everything that it needs, or report what is missing."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.db import connections

from .. import conf
from .connecting import PASSWORD, SSL
from .errors import NoSpark, OptionError
from .java import find_java
from .suffixes import BY_DEFAULT, OPTION, suffixes_of_settings
from .writer.write_options import ADAPTIVE_STREAMS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST, BELOW = (4, 2), (5, 0)
_INSTALL = "install this package with its extra spark"

SECRETS = (PASSWORD, "DATABASE_URL")
"""Environment variables that hold the password. The second one is for projects whose settings read it."""

SECRET_REFERENCE = ".secretKeyRef."
"""Part of a Kubernetes setting's key. The value of such a setting is the secret's name, not the secret."""

CONNECT_MODE = "SPARK_CONNECT_MODE_ENABLED"
"""An environment variable. PySpark sets it for a session of a Spark Connect server, and keeps it after its end."""

SERVER_TIMEOUT = 15.0
"""Seconds in which a Spark Connect server must answer. PySpark would try for ten minutes without a message."""


def session(
    name: str = "mqueue",
    *,
    master: str = "local[*]",
    memory: str = "1g",
    config: Mapping[str, str] | None = None,
    remote: str | None = None,
) -> SparkSession:
    """Return a Spark session that knows ``format("mqueue")``: a running one, with ``config`` applied, or a new one.

    * ``name``: the name of the application.
    * ``master``: as in Spark.
    * ``memory``: the memory of the driver. With a local master it is all memory of Spark.
    * ``config``: further configuration of Spark.
    * ``remote``: the URL of a Spark Connect server, such as ``sc://host``. Java and Python then run there.

    This function finds Java. Spark's Python processes use this interpreter, and can import this package and Django's
    settings module. Under ``spark-submit`` all of this is already decided: ``master`` and ``memory`` have no effect.

    Raises ``NoSpark`` if PySpark or Java is missing or has a wrong version. Raises ``OptionError`` for a ``config``
    that would hold the database's password.
    """
    check_configuration(config or {})
    check_pyspark()
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    settings, variables = dict(config or {}), dict[str, str]()
    if not os.environ.get("SPARK_REMOTE", "unset"):
        del os.environ["SPARK_REMOTE"]  # PySpark would take it for an address.
    builder = SparkSession.builder.appName(name)
    if remote:
        check_client()
        check_server(remote)
        builder = builder.remote(remote)
    elif (running := running_client()) is not None:
        builder = running.builder  # The other builder requires the server's address.
    elif not submitted():
        builder = builder.master(master)
        local = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        settings = {
            "spark.driver.memory": memory,
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            **(local if master.startswith("local") else {}),
            **settings,
        }
        variables = environment()
    builder = builder.config(map={ADAPTIVE_STREAMS: "false", **settings})
    try:
        with environment_variables(variables):
            spark = builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise NoSpark(
            "Java ended before Spark started; its output is above. Check that the memory is available and that the"
            " configuration is right"
        ) from error
    register(spark)
    return spark


@contextmanager
def environment_variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables in this process's environment for the block. Spark passes them to Java, which keeps them."""
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
    """Register ``format("mqueue")`` in the session."""
    from .reader.source import MQueueDataSource

    spark.dataSource.register(MQueueDataSource)


def submitted() -> bool:
    """Return whether ``spark-submit`` started this process. Then Java runs already."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def check_pyspark() -> None:
    """Raise ``NoSpark`` if PySpark, pyarrow or pandas is missing, or if the version of PySpark is not supported."""
    for module in ("pyspark", "pyarrow", "pandas"):
        if find_spec(module) is None:
            raise NoSpark(f"{module} is not installed: {_INSTALL}")
    version = str(import_module("pyspark").__version__)
    found = tuple(int(part) for part in version.split(".")[:2])
    if not OLDEST <= found < BELOW:
        raise NoSpark(
            f"PySpark is {version}, but must be at least {OLDEST[0]}.{OLDEST[1]} and below {BELOW[0]}: {_INSTALL}"
        )


def check_configuration(keys: Iterable[str]) -> None:
    """Raise ``OptionError`` for the key of a setting that would hold the password. Spark shows its configuration."""
    for key in keys:
        name = next((name for name in SECRETS if name in key), None)
        if name is not None and SECRET_REFERENCE not in key:
            raise OptionError(
                f"{key}: Spark stores and shows its configuration. Let the cluster set {name} in the environment of"
                " executors, or give them a file with the password (--password-file, or the option 'passwordFile')"
            )


def check_client() -> None:
    """Raise ``NoSpark`` if a package is missing that a client of Spark Connect needs."""
    for module in ("grpc", "grpc_status", "google.rpc", "zstandard"):
        try:
            import_module(module)
        except ImportError:
            raise NoSpark(
                f"Spark Connect: {module} is not installed: pip install 'pyspark[connect]'"
            ) from None


def check_server(url: str) -> None:
    """Raise ``NoSpark`` if no server answers at that ``sc://`` URL. PySpark reports an invalid URL."""
    import grpc
    from pyspark.sql.connect.client import DefaultChannelBuilder

    builder = DefaultChannelBuilder(url)
    with builder.toChannel() as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=SERVER_TIMEOUT)
        except grpc.FutureTimeoutError:
            raise NoSpark(
                f"no Spark Connect server answers at {builder.endpoint} within {SERVER_TIMEOUT:g} s: check that it"
                f" runs there, and that it expects a connection {'with' if builder.secure else 'without'} TLS"
                " (;use_ssl=true)"
            ) from None


def running_client() -> SparkSession | None:
    """Return the running session of a Spark Connect server. If there is none, PySpark can start Spark here again."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    if CONNECT_MODE not in os.environ:
        return None
    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        del os.environ[CONNECT_MODE]
        return None


def environment() -> dict[str, str]:
    """Return the environment variables that Spark's processes need. A ``PYSPARK_PYTHON`` that is set is kept."""
    python = os.environ.get("PYSPARK_PYTHON", sys.executable)
    folders = [str(Path(__file__).resolve().parents[2])]
    module = os.environ.get("DJANGO_SETTINGS_MODULE", "").partition(".")[0]
    if module and (spec := find_spec(module)):
        places = spec.submodule_search_locations or filter(None, [spec.origin])
        folders += [str(Path(place).resolve().parent) for place in places]
    known = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    return {
        "JAVA_HOME": str(find_java().home),
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": os.environ.get("PYSPARK_DRIVER_PYTHON", python),
        "PYTHONPATH": os.pathsep.join(dict.fromkeys([*known, *folders])),
    }


def settings_options(using: str | None = None) -> dict[str, str]:
    """Return Django's parameters of the queue's database as options of ``format("mqueue")``, without the password.

    The options are for executors without Django's settings. They include the dead-letter suffixes if these differ from
    the default. Such an executor takes the password from ``MQUEUE_PASSWORD``, or from a place that another option
    names. ``using``: the alias of the database.
    """
    found: dict[str, Any] = connections[conf.database(using)].settings_dict
    further, suffixes = found["OPTIONS"], suffixes_of_settings()
    ssl, mode = further.get("ssl"), further.get("ssl_mode")
    if ssl is not None and not isinstance(ssl, Mapping):
        ssl, mode = None, mode or ("REQUIRED" if ssl else "DISABLED")  # As in mysqlclient since 2.2.4.
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
