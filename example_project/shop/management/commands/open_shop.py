"""``manage.py open_shop``: the shop with customers, a worker and the admin, until Ctrl-C."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from secrets import token_hex, token_urlsafe
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError

from django_mqueue.exceptions import RequestTimeout
from example_project.environment.lineage import die_with_parent
from example_project.workers import ROOT, Workers, workers

from ...events import WORK
from ...opening import place_random_order

USER = "operator"
WITHOUT_WORKER = 60
"""Seconds without a worker, before a dead worker is replaced."""


class Command(BaseCommand):
    help = "Open the shop: an order every second, a worker, and the admin in your browser. Ctrl-C closes it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--address", default="127.0.0.1:8000", help="where the admin is served")
        parser.add_argument(
            "--metrics-port", type=int, metavar="PORT", help="where the worker serves metrics for Prometheus"
        )
        parser.add_argument("--every", type=float, default=1.0, metavar="SECONDS", help="between two orders")

    def handle(self, *args: Any, **options: Any) -> None:
        if not 0 < options["every"] < float("inf"):
            raise CommandError("--every must be more than 0 seconds")
        address, port, password = options["address"], options["metrics_port"], token_urlsafe(9)
        metrics = [] if port is None else ["--metrics-address", "127.0.0.1", "--metrics-port", str(port)]
        _operator(password)
        try:
            with (
                workers([f"shop-{token_hex(4)}"], *WORK, *metrics, "--verbosity", "0") as started,
                _served(address) as server,
            ):
                self._say(f"The admin: http://{address}/admin/django_mqueue/")
                if metrics:
                    self._say(f"The metrics: http://127.0.0.1:{port}/metrics")
                self._say(f"Log in as {USER} with the password {password}")
                self._say(
                    "Orders come in. Some cards do not work: see the dead letters. Ctrl-C closes the shop."
                )
                self._serve_customers(options["every"], started, server)
        except KeyboardInterrupt:
            self._say("The shop is closed.")
            return
        raise CommandError(f"the admin has ended; is {address} taken by another program?")

    def _serve_customers(self, every: float, started: Workers, server: subprocess.Popen[bytes]) -> None:
        """Place orders while the admin runs. A dead worker is replaced later, so that the admin shows its absence."""
        chance, alone_since = random.Random(), None
        while server.poll() is None:
            if started.running():
                alone_since = None
            elif alone_since is None:
                alone_since = time.monotonic()
                self._say(f"The worker has died; another starts in {WITHOUT_WORKER} s.")
            elif time.monotonic() - alone_since > WITHOUT_WORKER:
                started.start_another(f"shop-{token_hex(4)}")
            try:
                place_random_order(chance)
            except RequestTimeout:
                self._say("A customer has left: no price within the time. Is its topic paused?")
            time.sleep(every)

    def _say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()


def _operator(password: str) -> None:
    """Create the superuser if necessary, and set a new password."""
    user, _ = User.objects.get_or_create(username=USER)
    user.is_staff = user.is_superuser = user.is_active = True
    user.set_password(password)
    user.save()


@contextmanager
def _served(address: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run Django's own server in its own process during the block."""
    command = [sys.executable, "-m", "django", "runserver", address, "--noreload", "--insecure"]
    server = subprocess.Popen(
        [*command, "--settings", settings.SETTINGS_MODULE, "--verbosity", "0"],
        cwd=ROOT,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        preexec_fn=die_with_parent(),
    )
    try:
        yield server
    finally:
        server.terminate()
        server.wait()
