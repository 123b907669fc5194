"""The command ``python3 tests/prove.py``, which runs the proof by hand for any length of time."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import quote

from example_project.environment.database import FLAVOURS
from example_project.environment.layout import LOCAL
from example_project.environment.server import PrivateServer, private_server
from tests.databases import connection_parameters, own_database
from tests.proof.checker import Rules, check, summary
from tests.proof.disk import Disk, small_disk
from tests.proof.history import read
from tests.proof.run import SLACK, Options, Result, Run

DESCRIPTION = """\
Publishers, workers and faults for a while, on a private server or the one that DATABASE_URL names (in a
database of its own, which is dropped at the end; that server is not killed, nor its disk filled). Then everything
that is left is done, and the history is checked against the promises.
"""


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tests/prove.py", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=5.0, help="under faults (default: 5)")
    parser.add_argument(
        "--seed", type=int, default=None, help="of all that is left to chance (default: a new one)"
    )
    parser.add_argument("--server", choices=list(FLAVOURS), default="mariadb", help="which private server")
    parser.add_argument("--every", type=float, default=3.0, help="seconds between faults, on average")
    parser.add_argument("--rate", type=float, default=400.0, help="messages a second")
    parser.add_argument("--lease", type=float, default=5.0, help="LEASE_DURATION")
    parser.add_argument("--publishers", type=int, default=3)
    parser.add_argument("--workers", type=int, default=3, help="processes of runconsumer")
    parser.add_argument("--threads", type=int, default=8, help="of each worker")
    parser.add_argument("--keep", action="store_true", help="keep the history even if there is no breach")
    parser.add_argument("--check", type=Path, metavar="HISTORY", help="only check a history that was kept")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    if options.check:
        events = read(options.check)
        return tell(
            Result(summary(events), check(events, Rules(options.lease, SLACK)), {}, []),
            options.check,
            keep=True,
        )
    seed = random.randrange(1 << 30) if options.seed is None else options.seed
    where = "given" if os.environ.get("DATABASE_URL") else options.server
    directory = LOCAL / "proof" / f"{time.strftime('%Y%m%d-%H%M%S')}-{where}-{seed}"
    directory.mkdir(parents=True)
    print(f"seed {seed}, history in {directory.relative_to(LOCAL.parent)}", flush=True)
    played = Options(
        seed, options.minutes * 60, options.every, options.rate, options.lease, options.threads, options.workers,
        publishers=options.publishers,
    )  # fmt: skip
    with stage(options.server) as (url, server, disk):
        result = play(played, directory, url, server, disk)
    return tell(result, directory, keep=options.keep)


@contextmanager
def stage(kind: str) -> Iterator[tuple[str, PrivateServer | None, Disk | None]]:
    """Yield (URL of an empty database, private server, its disk).

    On the server of ``DATABASE_URL``, the server and the disk are None.
    """
    with ExitStack() as stack:
        if given := os.environ.get("DATABASE_URL"):
            print("on the server that DATABASE_URL names: it is not killed", flush=True)
            yield stack.enter_context(own_database(given, "proof")), None, None
            return
        disk = stack.enter_context(small_disk(LOCAL / "proof" / f"disk-{os.getpid()}"))
        if disk is None:
            print("no small disk can be mounted here: it is never full", flush=True)
        home = disk.directory if disk else LOCAL / "proof" / "servers"
        server = stack.enter_context(private_server(FLAVOURS[kind](), home))
        print(f"{kind} {server.version}", flush=True)
        yield server.url(), server, disk


def play(
    options: Options, directory: Path, url: str, server: PrivateServer | None, disk: Disk | None
) -> Result:
    """Migrate the database, run the workload, and check the history."""
    os.environ["DATABASE_URL"] = url
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.proof.settings"
    import django
    from django.core.management import call_command
    from django.db import connections

    django.setup()
    call_command("migrate", verbosity=0)
    connections.close_all()
    patient = f"{url}{'&' if '?' in url else '?'}init_command={quote('SET innodb_lock_wait_timeout=1')}"
    run = Run(
        options, directory, patient, connection_parameters(url), server, disk,
        lambda text: print(text, flush=True),
    )  # fmt: skip
    return run()


def tell(result: Result, directory: Path, *, keep: bool) -> int:
    """Print the result, and return the exit code."""
    print(f"\n{result.summary.markdown()}\n")
    for name, count in sorted(result.faults.items()):
        print(f"{count:6} {name.replace('_', ' ')}")
    for complaint in result.complaints:
        print(complaint)
    for breach in result.breaches:
        print(f"\n{breach}")
    print(f"\n{len(result.breaches)} breaches", flush=True)
    failed = bool(result.breaches or result.complaints)
    if not failed and not keep:
        shutil.rmtree(directory)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
