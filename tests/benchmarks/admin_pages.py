"""The cost of the admin's pages on long tables: ``python3 -m tests.benchmarks.admin_pages``."""

from __future__ import annotations

import argparse
import fnmatch
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tests.benchmarks.stage import say

BUDGET_MS = 300
"""Milliseconds of SQL that a page may take."""

DESCRIPTION = f"""\
Fills a private server, or a database beside the one that DATABASE_URL names, with a system at work; asks for every page
of the admin, and tells how many statements each makes, how many rows the server reads for it, and the time of its
SQL (the median of five times, none of them from a cache). Pages over {BUDGET_MS} ms fail, and those that read more
rows than they should (tests/benchmarks/views.py says how many).
Ten million messages take a few minutes and ten gigabytes.
"""


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python3 -m tests.benchmarks.admin_pages",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--messages", type=int, default=10_000_000, help="rows of the log (default: %(default)s)"
    )
    parser.add_argument(
        "--partitions", type=int, default=5_000, help="of the largest topic (default: %(default)s)"
    )
    parser.add_argument("--topics", type=int, default=1_000, help="small ones (default: %(default)s)")
    parser.add_argument(
        "--server", choices=["mariadb", "mysql"], default="mariadb", help="which private server"
    )
    parser.add_argument(
        "--keep", action="store_true", help="leave the database, and use it if it is there already"
    )
    parser.add_argument(
        "--only", default="*", metavar="PATTERN", help="pages whose name matches, as 'message: *'"
    )
    parser.add_argument("--statements", action="store_true", help="show the statements of each page")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    if options.keep and not os.environ.get("DATABASE_URL"):
        print("--keep needs a DATABASE_URL: a private server ends with this program", file=sys.stderr)
        return 2
    with stage(options.server, keep=options.keep) as url:
        os.environ["DATABASE_URL"] = url
        os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
        import django

        django.setup()
        return run(options)


@contextmanager
def stage(kind: str, *, keep: bool) -> Iterator[str]:
    """Yield the URL of a separate database."""
    with ExitStack() as stack:
        if given := os.environ.get("DATABASE_URL"):
            from tests.databases import own_database

            yield stack.enter_context(own_database(given, "admin_pages", keep=keep))
            return
        import MySQLdb

        from example_project.environment.database import FLAVOURS
        from example_project.environment.server import private_server

        server = stack.enter_context(private_server(FLAVOURS[kind]()))
        print(f"{kind} {server.version}", flush=True)
        with MySQLdb.connect(unix_socket=str(server.place.socket), user="root") as connection:
            cursor = connection.cursor()
            # A server of this size gets more memory than the tests' servers. Its data need not survive a crash.
            cursor.execute("SET GLOBAL innodb_buffer_pool_size = 1073741824")
            cursor.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 2")
        yield server.url()


def run(options: argparse.Namespace) -> int:
    """Fill an empty database, request the pages and print their cost. Return the exit code."""
    from django.contrib.auth import get_user_model
    from django.core.management import call_command
    from django.test import Client

    from tests.benchmarks import world as worlds
    from tests.benchmarks.measuring import measure, taken_apart
    from tests.benchmarks.views import EACH, views

    call_command("migrate", verbosity=0)
    world = worlds.found()
    if world is None:
        size = worlds.Size(options.messages, options.partitions, options.topics)
        world = worlds.make(size, say)
    say(
        f"{world.size.messages:,} messages, {world.size.partitions:,} partitions, {world.size.topics:,} small topics"
    )
    user, _ = get_user_model().objects.get_or_create(username="admin", is_superuser=True, is_staff=True)
    client, failed, chosen = Client(), [], 0
    client.force_login(user)
    print(f"\n{'page':44} {'statements':>10} {'rows read':>10} {'ms, first':>10} {'ms':>7}")
    with worlds.as_of(world):
        for name, view in views(world).items():
            if not fnmatch.fnmatch(name, options.only):
                continue
            chosen += 1
            found = measure(client, view)
            problems = []
            if found.status != 200:
                problems.append(f"status {found.status}")
            if found.ms > BUDGET_MS:
                problems.append(
                    f"over {BUDGET_MS} ms; the slowest: {found.slowest.ms:.0f} ms {found.slowest.sql[:300]}"
                )
            if found.rows > (most := view.most + EACH * world.size.partitions):
                problems.append(f"over {most:,} rows")
            failed += [name] * bool(problems)
            print(
                f"{name:44} {len(found.statements):10} {found.rows:10,} {found.first:10.1f} {found.ms:7.1f}"
                f" {'; '.join(problems)}".rstrip(),
                flush=True,
            )
            if options.statements:
                for one in taken_apart(client, view):
                    print(f"    {one.ms:8.1f} ms {one.rows:10,} rows  {one.sql}", flush=True)
    if not chosen:
        print(f"\nno page's name matches {options.only!r}", flush=True)
        return 2
    print(f"\n{len(failed)} pages over the budget" if failed else "\nall pages within the budget", flush=True)
    return int(bool(failed))


def launch_it(arguments: list[str]) -> int:
    """Install what is missing, as the tests do, and run the benchmark with it."""
    from example_project.environment.interpreters import running
    from example_project.environment.processes import forward
    from example_project.environment.venv import VirtualEnvironment

    python = VirtualEnvironment(running(), django="5.2", extras=("dev", "example", "test")).ensure()
    return forward([python, "-m", "tests.benchmarks.admin_pages", *arguments], env=dict(os.environ))


if __name__ == "__main__":
    from example_project.environment.launch import launch

    has_all = all(map(importlib.util.find_spec, ("django", "MySQLdb", "environ")))
    launch(main if has_all else launch_it)
