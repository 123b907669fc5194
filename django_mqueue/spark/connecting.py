"""Connections from Spark to the queue's database. Options name the server, but never the password.

Spark keeps options in plans, logs and checkpoints, and shows its configuration in web pages. So each process that opens
a connection, the driver or an executor, takes the password from its environment (``MQUEUE_PASSWORD``), from a file, or
from a function. If the options name no database, everything comes from Django's settings. Then the processes need
``DJANGO_SETTINGS_MODULE``.

The queue's code also runs without Django's settings (see ``sql.detached``).
"""

from __future__ import annotations

import itertools
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connections

from .. import conf
from ..store.connection import errors
from ..store.connection.dialect import SSL_MODES
from .errors import NoConnection, OptionError

PASSWORD = "MQUEUE_PASSWORD"
SSL = {"sslCa": "ca", "sslCapath": "capath", "sslCert": "cert", "sslKey": "key", "sslCipher": "cipher"}
"""Options, and their names in mysqlclient's ``ssl``."""

CONNECTION_OPTIONS = frozenset(
    {"host", "port", "user", "database", "unixSocket", "sslMode", "passwordFile", "defaultsFile", "defaultsGroup",
     "connectionHook", "using", *SSL}
)  # fmt: skip
OPTIONS_ALLOWED = "MQUEUE_CONNECTION_OPTIONS"
"""An environment variable. If it is ``refuse``, options must not name a server, an account, a file or a function."""

TIMEOUT = 20
"""Seconds after which an attempt to connect fails."""

RETRY_FOR = 60.0
Result = TypeVar("Result")


@dataclass(frozen=True)
class ConnectionParameters:
    """The address of the database, without secrets.

    * ``driver_arguments``: arguments for mysqlclient, without the password.
    * ``password_file``: a file that holds the password.
    * ``hook``: a function that returns parameters of mysqlclient. It is called where the connection is opened.
    * ``using``: an alias of Django's ``DATABASES``, instead of ``driver_arguments`` and ``hook``.
    """

    driver_arguments: Mapping[str, Any] = field(default_factory=dict)
    password_file: str | None = None
    hook: str | None = None
    using: str | None = None

    @property
    def by_django(self) -> bool:
        """Return whether Django's settings name the database."""
        return not self.driver_arguments and not self.hook

    def where(self) -> str:
        """Return the server, the database and the account, for messages."""
        if self.by_django:
            return (
                f"Django's database {conf.database(self.using)!r}" if has_settings() else "Django's database"
            )
        if not self.driver_arguments:
            return f"the database of {self.hook}"
        if "read_default_file" in self.driver_arguments and "host" not in self.driver_arguments:
            return f"the database of {self.driver_arguments['read_default_file']}"
        given = self.driver_arguments
        server = given.get("unix_socket") or f"{given.get('host', 'localhost')}:{given.get('port', 3306)}"
        return f"database {given.get('database')!r} at {server} as {given.get('user', 'the current user')!r}"


def connecting(options: Mapping[str, str]) -> ConnectionParameters:
    """Parse the options of a connection. Option names are case-insensitive. Raises ``OptionError``."""
    options = {name.lower(): value for name, value in options.items()}
    names = {
        "host": "host", "user": "user", "database": "database", "unixsocket": "unix_socket",
        "defaultsfile": "read_default_file", "defaultsgroup": "read_default_group",
    }  # fmt: skip
    parameters: dict[str, Any] = {theirs: options[name] for name, theirs in names.items() if name in options}
    if "port" in options:
        if not options["port"].isdecimal() or not 0 < int(options["port"]) < 65536:
            raise OptionError(f"option 'port' is {options['port']!r}, but must be a number from 1 to 65535")
        parameters["port"] = int(options["port"])
    if ssl := {theirs: options[name.lower()] for name, theirs in SSL.items() if name.lower() in options}:
        parameters["ssl"] = ssl
    if (mode := options.get("sslmode")) is not None:
        if mode not in SSL_MODES:
            raise OptionError(f"option 'sslMode' is {mode!r}, but must be one of {', '.join(SSL_MODES)}")
        parameters["ssl_mode"] = mode
    hook, using = options.get("connectionhook"), options.get("using")
    if using is not None and (parameters or hook):
        raise OptionError(
            f"option 'using' is {using!r}, an alias of Django's DATABASES: leave out host, database and the like"
        )
    if hook is not None and hook.count(":") != 1:
        raise OptionError(f"option 'connectionHook' is {hook!r}, but must be like package.module:function")
    if parameters and not hook and "database" not in parameters and "read_default_file" not in parameters:
        raise OptionError("option 'database' is missing: give it with the other connection options")
    return ConnectionParameters(parameters, options.get("passwordfile"), hook, using)


@contextmanager
def connected(parameters: ConnectionParameters) -> Iterator[str]:
    """Open a connection for this thread and yield its alias. Close the connection at the end of the block.

    Raises ``NoConnection``, which says what is wrong and where, and ``OptionError`` if the options are not allowed
    here.
    """
    from .sql import detached  # Imported here: code that only parses options needs no driver.

    with ExitStack() as stack:
        try:
            alias = stack.enter_context(detached.connection(_settings(parameters)))
        except (DatabaseError, InterfaceError) as error:
            raise NoConnection(_explained(parameters, error)) from error
        with _explaining_missing_tables(parameters):
            yield alias


@contextmanager
def _explaining_missing_tables(parameters: ConnectionParameters) -> Iterator[None]:
    try:
        yield
    except DatabaseError as error:
        if errors.is_no_table(error):
            raise NoConnection(
                f"{parameters.where()} holds no tables of the queue: run manage.py migrate"
            ) from error
        raise


class RetryingConnection:
    """A connection that stays open between uses, and is opened again after an error. For one thread."""

    def __init__(self, parameters: ConnectionParameters) -> None:
        self._parameters = parameters
        self._stack = ExitStack()
        self._using: str | None = None

    def run(self, work: Callable[[str], Result]) -> Result:
        """Return ``work(alias)``. After a transient error, retry for up to a minute.

        The minute begins with the first failure. ``work`` must be safe to run twice: a failure may come after its
        commit. A new connection has another alias.
        """
        deadline: float | None = None
        for attempt in itertools.count(1):
            try:
                if self._using is None:
                    self._using = self._stack.enter_context(connected(self._parameters))
                with _explaining_missing_tables(self._parameters):
                    return work(self._using)
            except (DatabaseError, InterfaceError, NoConnection) as error:
                cause = error.__cause__ if isinstance(error, NoConnection) else error
                self.close()
                now = time.monotonic()
                is_first = deadline is None
                deadline = now + RETRY_FOR if deadline is None else deadline
                if cause is None or not errors.is_temporary(cause) or now > deadline:
                    raise
                if is_first and errors.is_perhaps_mistaken(cause):
                    warnings.warn(f"{error}. Retrying for up to {RETRY_FOR:.0f} s", stacklevel=2)
            time.sleep(min(0.1 * 2**attempt, 5))
        raise AssertionError("unreachable")

    def close(self) -> None:
        self._using = None
        with suppress(DatabaseError, InterfaceError):
            self._stack.close()


def _settings(parameters: ConnectionParameters) -> Mapping[str, Any]:
    """Return an entry of ``DATABASES``."""
    if options_refused() and not (parameters.by_django and parameters.password_file is None):
        raise OptionError(
            f"{parameters.where()}: the environment's {OPTIONS_ALLOWED} is refuse, so no option may name a server, an"
            " account, a file or a function here. Leave them out: Django's settings name the database, 'using' one of"
            " several"
        )
    password = None if parameters.password_file is None else _read_password(parameters.password_file)
    if parameters.by_django:
        of_django = _of_django(parameters)
        return of_django if password is None else {**of_django, "PASSWORD": password}
    arguments: dict[str, Any] = {"connect_timeout": TIMEOUT, **parameters.driver_arguments}
    if password is not None:
        arguments["password"] = password
    elif PASSWORD in os.environ:
        arguments["password"] = os.environ[PASSWORD]
    if parameters.hook is not None:
        arguments |= _called(parameters.hook)
    names = {"NAME": "database", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    found = {setting: arguments.pop(name, "") for setting, name in names.items()}
    return {**found, "OPTIONS": arguments}


def _read_password(path: str) -> str:
    try:
        return Path(path).read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise NoConnection(f"option 'passwordFile': {path} cannot be read here: {error}") from error


def has_settings() -> bool:
    """Return whether this process has Django's settings."""
    return settings.configured or bool(os.environ.get("DJANGO_SETTINGS_MODULE"))


def options_refused() -> bool:
    """Return whether this process takes the database from Django's settings alone. Raises ``OptionError``."""
    value = os.environ.get(OPTIONS_ALLOWED, "allow")
    if value not in ("allow", "refuse"):
        raise OptionError(f"the environment's {OPTIONS_ALLOWED} is {value!r}, but must be allow or refuse")
    return value == "refuse"


def _called(hook: str) -> Mapping[str, Any]:
    module, _, name = hook.partition(":")
    try:
        function = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise NoConnection(f"option 'connectionHook': {hook} cannot be imported: {error}") from error
    failed = ""
    try:
        found = function()
    except Exception as error:
        failed = type(error).__name__
    if failed:  # Outside of the handler, or Spark's tracebacks would show the error as the context.
        raise NoConnection(
            f"option 'connectionHook': {hook} failed here: {failed}. The text of the error is hidden, because it may"
            " contain a secret: call the function by hand, on this machine"
        )
    if not isinstance(found, Mapping):
        raise NoConnection(
            f"option 'connectionHook': {hook} must return a mapping, not {type(found).__name__}"
        )
    return found


def _of_django(parameters: ConnectionParameters) -> Mapping[str, Any]:
    if not has_settings():
        raise NoConnection(
            "no database was named: give the options 'host', 'user' and 'database' (or 'defaultsFile' or"
            " 'connectionHook'), or set DJANGO_SETTINGS_MODULE in the environment of Spark's processes"
        )
    using = conf.database(parameters.using)
    if using not in settings.DATABASES:
        raise OptionError(
            f"option 'using' is {using!r}, but DATABASES has only {', '.join(settings.DATABASES)}"
        )
    return connections[using].settings_dict


def _explained(parameters: ConnectionParameters, error: Exception) -> str:
    where = parameters.where()
    if errors.is_access_denied(error):
        places = f"'connectionHook', 'passwordFile' or the environment's {PASSWORD}"
        if parameters.by_django:
            places = "Django's settings" if parameters.password_file is None else "'passwordFile'"
        return f"{where}: the server refuses this account ({error.args[-1]}). Check the password in {places}"
    if errors.is_no_database(error):
        place = "NAME in Django's settings" if parameters.by_django else "the option 'database'"
        return f"{where}: {error.args[-1]}. Check {place}"
    return f"{where} cannot be reached from here: {error.args[-1] if error.args else error}"
