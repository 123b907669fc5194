"""``manage.py runconsumer``: run the registered handlers."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import fields
from functools import partial
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.checks import ERROR, CheckMessage
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, connections

from ... import conf, tracing
from ...checks import READ_ONLY, server_problems
from ...command.verbs import positive_int
from ...exceptions import MQueueError
from ...policy.names import OPERATIONS_TOPIC
from ...service.subscription import BATCH_MAX
from ...service.topics import internal_topics, problem_of
from ...store.connection import errors, session
from ...workers.liveness import LivenessFile
from ...workers.processes.child import Recycling
from ...workers.processes.reload import run_with_reload
from ...workers.processes.supervisor import Supervisor
from ...workers.registry import Handler, autodiscover, handlers
from ...workers.runner import Runner, RunOptions, WorkerContext

LEFT = 3
"""Exit code of ``--drain`` if messages are left."""
MISTAKEN_AFTER = 5.0
"""Seconds after which an unknown host name or a failed TLS connection is treated as a mistake in the settings."""
SECONDS_MAX = 366 * 86_400

NOT_WITH_RELOAD = (
    "drain", "max_messages", "max_seconds", "max_messages_per_child", "max_memory_per_child",
)  # fmt: skip
"""Options that end or replace workers. ``--reload`` runs one worker until it is stopped."""


def batch_size(text: str) -> int:
    value = positive_int(text)
    if value > BATCH_MAX:
        raise argparse.ArgumentTypeError(f"must be at most {BATCH_MAX}, not {value}")
    return value


def seconds(text: str) -> float:
    value = float(text)
    if not 0 < value <= SECONDS_MAX:
        raise argparse.ArgumentTypeError(
            f"must be more than 0 and at most {SECONDS_MAX} seconds (366 days), not {text}"
        )
    return value


def port(text: str) -> int:
    value = int(text)
    if not 0 <= value <= 65_535:
        raise argparse.ArgumentTypeError(f"must be a port, 0 to 65535, not {value}")
    return value


class Command(BaseCommand):
    help = (
        "Run the handlers registered with @consumer, all or only the named ones. The first SIGTERM or SIGINT"
        " finishes and settles the running messages, then exits. The second stops at once."
    )
    requires_system_checks = ["mqueue"]
    _runner: Runner | Supervisor | None = None
    _stopping = False

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("handlers", nargs="*", metavar="TOPIC[:GROUP]", help="Default: every registered handler.")
        help = (
            "Also run the jobs of these queues of Django's Tasks; without a name, of all queues. With --tasks, only the"
            " named handlers run. mail=3 gets three times the threads' time of a queue without a weight."
        )
        add("--tasks", nargs="*", metavar="QUEUE[=WEIGHT]", help=help)
        help = "Number of handlers that run at once (default 4)."
        add("--threads", type=positive_int, default=4, help=help)
        help = "Number of child processes that run the handlers, each with --threads (default 1: no child process)."
        add("--processes", type=positive_int, default=1, metavar="N", help=help)
        help = (
            "Name of this worker; must be unique (default: generated). Child processes are NAME-1, NAME-2 …"
        )
        add("--name", help=help)
        help = "Messages per partition in flight; overrides handlers' batch_size."
        add("--batch-size", type=batch_size, help=help)
        add("--poll-interval", type=seconds, help="Seconds between polls when idle.")
        add("--drain", action="store_true", help="Stop when nothing is left to do now.")
        help = (
            "With --drain: seconds to wait for messages that other workers, perhaps dead ones, have leased"
            " (default: two lease durations). If some are left then, the exit code is 3."
        )
        add("--drain-timeout", type=seconds, help=help)
        add("--max-messages", type=positive_int, help="Stop each process after this many messages.")
        add("--max-seconds", type=seconds, help="Stop after this time.")
        help = "Replace a child process after it has handled this many messages, or up to 10 %% fewer."
        add("--max-messages-per-child", type=positive_int, metavar="N", help=help)
        help = "Replace a child process that uses more resident memory than this, in MiB."
        add("--max-memory-per-child", type=positive_int, metavar="MIB", help=help)
        add("--reload", action="store_true", help="For development: restart the worker when code changes.")
        help = "Serve metrics for Prometheus at this port, of all child processes together; 0: any free port."
        add("--metrics-port", type=port, metavar="PORT", help=help)
        add(
            "--metrics-address",
            default="0.0.0.0",
            help="Address of the metrics (default: all IPv4 addresses).",
        )
        help = "Serve only the metrics of the workers, so that many workers do not all read the database for them."
        add("--no-database-metrics", action="store_true", help=help)
        help = "Touch this file while the loop of the worker runs, for liveness probes. It is removed at the end."
        add("--liveness-file", metavar="PATH", help=help)
        add("--database", help='Alias of the queue\'s database (default MQUEUE["DATABASE"]).')

    def handle(self, *args: Any, **options: Any) -> None:
        if not options["reload"]:
            self._run(options)
            return
        excluded = [name for name in NOT_WITH_RELOAD if options[name]]
        if options["processes"] > 1:
            excluded.append("processes")
        if excluded:
            raise CommandError(
                f"--reload and --{excluded[0].replace('_', '-')} exclude each other: --reload runs one worker until you"
                " stop it. Leave out one of them"
            )
        run_with_reload(partial(self._run_reloaded, options), self._stop)

    def _run(self, options: dict[str, Any]) -> None:
        """Run the handlers in this process, or in child processes."""
        chosen, using = self._prepare(options)
        _check_liveness_file(options["liveness_file"])
        try:
            with self._metrics(chosen, using, options) as worker_context:
                runner = self._runner = _runner(chosen, using, options, worker_context)
                if self._stopping:
                    runner.stop()
                before = self._handle_signals(runner)
                try:
                    with session.raises_not_migrated(using):
                        runner.run()
                finally:
                    for number, handler_before in before.items():
                        signal.signal(number, handler_before)
        except MQueueError as error:
            raise CommandError(str(error)) from error
        if options["verbosity"] > 0:
            done = ", ".join(f"{verb} {count}" for verb, count in sorted(runner.counts.items()))
            self.stdout.write(f"stopped: {done or 'nothing to do'}")
        if runner.left:
            raise CommandError(
                f"--drain: at least {runner.left} messages are left: other workers have leased their partitions, or"
                " open transactions have locked them. The leases of dead workers expire: run this again then, or with"
                " a longer --drain-timeout",
                returncode=LEFT,
            )

    @contextmanager
    def _metrics(self, chosen: list[Handler], using: str, options: dict[str, Any]) -> Iterator[WorkerContext]:
        """Open the port for metrics, if ``--metrics-port`` is given. Yield the context in which workers serve it."""
        number, address = options["metrics_port"], options["metrics_address"]
        if number is None:
            yield lambda name: nullcontext()
            return
        try:
            from ...metrics.server import listening
        except ModuleNotFoundError as error:
            raise CommandError(
                "--metrics-port needs the package prometheus-client: install the extra django-mqueue[prometheus]"
            ) from error
        pairs = [(handler.topic, handler.group) for handler in chosen]
        with ExitStack() as stack:
            try:
                database = None if options["no_database_metrics"] else using
                endpoint = stack.enter_context(listening(address, number, database, pairs))
            except OSError as error:
                raise CommandError(
                    f"--metrics-port {number} of address {address} cannot be opened: {error}. Each runconsumer of a"
                    " host needs a port of its own, or 0 for any free port"
                ) from error
            if options["verbosity"] > 0:
                self.stdout.write(f"metrics: {endpoint.url}")
                self.stdout.flush()
            yield endpoint.serving

    def _prepare(self, options: dict[str, Any]) -> tuple[list[Handler], str]:
        """Find the handlers, check the database, and return the handlers and the alias of the database."""
        autodiscover()
        try:
            names = [*options["handlers"], *self._queues(options["tasks"])]
            chosen = handlers(names)
            operates = chosen and not names and apps.is_installed("django.contrib.admin")
            operations = handlers([OPERATIONS_TOPIC]) if operates else []
        except MQueueError as error:
            raise CommandError(str(error)) from error
        if not chosen:
            raise CommandError(
                "no handler is registered: decorate functions in an app's consumers.py with @consumer"
            )
        for handler in chosen:
            if text := problem_of(handler.topic):
                raise CommandError(f"{handler.name}: {text}")
        alias = conf.database(options["database"])
        if alias not in connections:
            what = 'MQUEUE["DATABASE"]' if options["database"] is None else "--database"
            raise CommandError(f"{what} {alias!r} is no entry of DATABASES: {', '.join(connections)}")
        elsewhere = [one.name for one in chosen if internal_topics & {one.topic, one.group}]
        if elsewhere and alias != conf.database():
            raise CommandError(
                f"--database {alias!r}: jobs and work items are in {conf.database()!r}, which is MQUEUE['DATABASE'], so"
                f" this worker cannot run {elsewhere[0]}: name the handlers to run"
            )
        for problem in self._problems(alias):
            if problem.level >= ERROR:
                raise CommandError(str(problem))
            self.stderr.write(self.style.WARNING(str(problem)))
        if options["verbosity"] > 0:
            for handler in chosen:
                self.stdout.write(f"consuming {handler.topic} for group {handler.group}: {handler.name}")
            self.stdout.flush()
        return [*chosen, *operations], alias

    def _queues(self, queues: list[str] | None) -> list[str]:
        """Register the handlers of queues in ``TASKS``. Return the names that ``--tasks`` selects."""
        if not getattr(settings, "TASKS", None) and queues is None:
            return []
        from ...tasks.queues import (  # On Django 5.2 it needs the package django-tasks.
            register_queues,
            selected,
        )

        known = register_queues()
        return [] if queues is None else selected(queues, known)

    def _run_reloaded(self, options: dict[str, Any]) -> None:
        try:
            self._run(options)
        except CommandError as error:
            self.stderr.write(f"{error}\nwaiting for a change of a file")

    def _stop(self) -> None:
        """Stop the worker gracefully, also if it has not begun."""
        self._stopping = True
        if self._runner is not None:
            self._runner.stop()

    def run_from_argv(self, argv: list[str]) -> None:
        """Run like Django's method, but end the process even if handlers hang.

        Python would wait for some of their threads.
        """
        code: Any = 1
        try:
            super().run_from_argv(argv)
            code = 0
        except SystemExit as end:
            code = end.code
            raise
        except Exception:
            if self._hangs:
                traceback.print_exc()  # ``os._exit`` below leaves Python no time for it.
            raise
        finally:
            if self._hangs and isinstance(code, int | None):
                tracing.flush()
                logging.shutdown()
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code or 0)

    @property
    def _hangs(self) -> bool:
        return isinstance(self._runner, Runner) and bool(self._runner.hanging)

    def _problems(self, alias: str) -> list[CheckMessage]:
        """Return the problems of the server; empty if it is not available, because the runner waits for it.

        A server that refuses writes gets some seconds, because a failover may not be finished. Raises ``CommandError``
        if the server stays unreachable for a reason that is probably a mistake in the settings.
        """
        deadline = time.monotonic() + MISTAKEN_AFTER
        while True:
            try:
                problems = server_problems(alias)
                if time.monotonic() >= deadline or all(one.id != READ_ONLY for one in problems):
                    return problems
            except DatabaseError as error:
                if not errors.is_temporary(error):
                    raise
                if not errors.is_perhaps_mistaken(error):
                    text = f"database {alias!r} is not available yet, waiting for it: {error}"
                    self.stderr.write(self.style.WARNING(text))
                    return []
                if time.monotonic() >= deadline:
                    raise CommandError(
                        f"database {alias!r} cannot be reached: {error}. Check HOST and OPTIONS of this entry of"
                        " DATABASES; if they are right, start again when the server is running"
                    ) from error
            time.sleep(0.2)

    def _handle_signals(self, runner: Runner | Supervisor) -> dict[int, Any]:
        """Stop gracefully at the first signal, at once at the second. Return the signal handlers set before."""
        asked = False

        def on_signal(number: int, frame: object) -> None:
            nonlocal asked
            if asked:
                if isinstance(runner, Supervisor):
                    runner.kill()
                os._exit(128 + number)
            asked = True
            runner.stop()

        try:
            return {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        except ValueError:  # Not in the main thread (call_command in a test): signals do not arrive there.
            return {}


def _check_liveness_file(path: str | None) -> None:
    try:
        with LivenessFile(path):
            pass
    except OSError as error:
        raise CommandError(
            f"--liveness-file {path!r} cannot be written: {error}. Give a path in a directory that exists and that this"
            " user may write to"
        ) from error


def _runner(
    chosen: list[Handler], using: str, options: dict[str, Any], worker_context: WorkerContext
) -> Runner | Supervisor:
    given = {field.name: options[field.name] for field in fields(RunOptions) if field.name != "using"}
    run_options = RunOptions(**given, using=using)
    recycling = Recycling(options["max_messages_per_child"], options["max_memory_per_child"])
    try:
        if options["processes"] == 1 and recycling == Recycling():
            return Runner(chosen, run_options, worker_context)
        return Supervisor(chosen, run_options, options["processes"], recycling, worker_context)
    except ValueError as error:
        raise CommandError(f"--name: {error}") from error
