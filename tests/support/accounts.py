"""Database accounts with exactly the privileges in the documentation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection

from tests.docs_and_example.docs.blocks import ROOT, blocks
from tests.servers import kind_of_run
from tests.support.threads import raw_connection

PAGE = ROOT / "docs" / "how-to" / "grant-privileges.md"
PASSWORD = "only-for-tests"


def documented() -> dict[str, str]:
    """Return the documented SQL for this run's server, by account name. A block of the page names its account."""
    found = {}
    for block in blocks(PAGE):
        words = dict(word.split("=") for word in block.info.split() if "=" in word)
        if "account" in words and words.get("server") in (None, kind_of_run()):
            found[words["account"]] = block.text
    return found


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
