"""Database accounts with exactly the privileges in the documentation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection

from tests.docs_and_example.docs.blocks import ROOT
from tests.servers import kind_of_run
from tests.support.threads import raw_connection

PAGE = ROOT / "docs" / "how-to" / "grant-privileges.md"
PASSWORD = "only-for-tests"


VERBS = {"S": "SELECT", "I": "INSERT", "U": "UPDATE", "D": "DELETE"}


def documented() -> dict[str, str]:
    """Return the documented privileges for this run's server as SQL, by account name."""
    (_, _, *tables), _, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.read_text().splitlines()
        if line.startswith("|")
    ]
    other = {"mysql": "(MariaDB)", "mariadb": "(MySQL)"}[kind_of_run()]
    return {
        name: created_with(
            name, {table.strip("`"): cell for table, cell in zip(tables, cells, strict=True) if cell}
        )
        for (account, _, *cells) in rows
        if (name := account.split("`")[1]) and other not in account
    }


def created_with(name: str, privileges: dict[str, str]) -> str:
    """Return SQL that creates the account. ``privileges`` has the letters of each table, as in the document."""
    lines = [f"CREATE USER {name}@localhost IDENTIFIED BY 'secret';"]
    for table, letters in privileges.items():
        verbs = re.sub(r"[SIUD]\b", lambda letter: VERBS[letter[0]], letters)
        lines.append(f"GRANT {verbs} ON shop.{table} TO {name}@localhost;")
    return "\n".join(lines) + "\n"


@contextmanager
def created(name: str) -> Iterator[str]:
    """Create the documented account on this run's server and database, and yield its user name."""
    settings = connection.settings_dict
    here = str(settings["HOST"]) in ("", "localhost") or str(settings["HOST"]).startswith("/")
    user = f"mq_{name}"
    quoted = f"'{user}'@'{'localhost' if here else '%'}'"
    sql = documented()[name].replace(f"{name}@localhost", quoted).replace("'secret'", f"'{PASSWORD}'")
    sql = re.sub(r"\bshop\.", f"`{settings['NAME']}`.", sql)
    with raw_connection() as server:
        server.execute(f"DROP USER IF EXISTS {quoted}")
        for statement in filter(None, map(str.strip, sql.split(";"))):
            server.execute(statement)
        try:
            yield user
        finally:
            server.execute(f"DROP USER {quoted}")


@contextmanager
def acting_as(name: str) -> Iterator[None]:
    """Make all connections that Django opens meanwhile, in any thread, use the account."""
    settings = connection.settings_dict
    before = settings["USER"], settings["PASSWORD"]
    with created(name) as user:
        connection.close()
        settings["USER"], settings["PASSWORD"] = user, PASSWORD
        try:
            yield
        finally:
            connection.close()
            settings["USER"], settings["PASSWORD"] = before
