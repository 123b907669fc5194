"""System checks of the settings and of the database server.

The database checks run with ``manage.py check --database default``, in ``migrate`` and when ``runconsumer`` starts. The
checks of encryption need no server. ``check_required_encryption`` runs with ``manage.py check``, ``check_encryption``
with ``manage.py check --deploy``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.apps import AppConfig
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import connections

from . import conf
from .doctor import routes, servers, variables
from .doctor.findings import ERROR, Finding
from .store.server import variables as reading

READ_ONLY = f"django_mqueue.{servers.READ_ONLY}"
"""The id of the error about a server that does not accept writes."""


@register("mqueue")
def check_settings(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    return [Error(problem, id="django_mqueue.E001") for problem in conf.problems()]


@register(Tags.security)
def check_required_encryption(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Warn if TLS is required, but the client library can send the password in the clear."""
    if conf.problems():
        return []
    alias = conf.database()
    return _messages(alias, routes.required_encryption(routes.remote_parameters(alias)))


@register(Tags.security, deploy=True)
def check_encryption(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Warn if the database server is on another machine and the connection may be unencrypted."""
    if conf.problems():
        return []
    alias = conf.database()
    return _messages(alias, routes.deployed_encryption(routes.remote_parameters(alias)))


@register(Tags.database)
def check_database(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    if conf.problems():
        return []
    alias = conf.database()
    return server_problems(alias) if alias in (databases or ()) else []


def server_problems(alias: str) -> list[CheckMessage]:
    """Return errors and warnings about the server of a database alias; empty if the queue can rely on it.

    Raises ``DatabaseError`` if the server cannot be reached.
    """
    if connections[alias].vendor != "mysql":
        return _messages(alias, [servers.other_product(connections[alias].display_name)])
    server = reading.read(alias)
    return _messages(alias, [*servers.findings(server), *variables.findings(server)])


def _messages(alias: str, findings: Iterable[Finding]) -> list[CheckMessage]:
    """Return findings as messages of Django's checks. The doctor says more about each."""
    return [
        (Error if one.severity == ERROR else Warning)(
            f"database {alias!r}: {one.what}. {one.why}", hint=one.repair, id=f"django_mqueue.{one.check}"
        )
        for one in findings
    ]
