"""The database of a run: the database in ``DATABASE_URL``, or a private server that ends with the run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .mariadb import mariadb
from .mysql import mysql
from .say import step
from .server import Flavour, private_server

FLAVOURS: dict[str, Callable[[], Flavour]] = {"mariadb": mariadb, "mysql": mysql}


@contextmanager
def database(kind: str = "mariadb") -> Iterator[str]:
    """Yield the URL of the database. ``kind``: the product of a private server, ``mariadb`` or ``mysql``."""
    given = os.environ.get("DATABASE_URL")
    if given:
        step("using the database that DATABASE_URL names")
        yield given
        return
    with private_server(FLAVOURS[kind]()) as server:
        step(f"{kind} {server.version} runs until this program ends")
        yield server.url()
