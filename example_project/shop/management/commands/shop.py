"""``manage.py shop``: a day at the shop with a real worker, and a check of the results."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from secrets import token_hex
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from django_mqueue.tasks import recurring_jobs, wait_for_result
from example_project.workers import Workers, workers

from ...check import wrong, wrong_refunds
from ...events import WORK
from ...office import share, work_off
from ...report import lines
from ...story import BROKEN, ORDERED, REFUNDED, Story

LOOK_EVERY = 0.1
TIMEOUT = 60.0


class Command(BaseCommand):
    help = "Place orders, handle them in a worker process, check the results; then redrive dead letters."

    def handle(self, *args: Any, **options: Any) -> None:
        story = Story()
        try:
            with workers([f"shop-{token_hex(4)}"], *WORK, "--verbosity", "0") as started:
                self._run(story, started)
        except KeyboardInterrupt:
            raise CommandError("interrupted", returncode=130) from None
        if failed := started.failed():
            raise CommandError(f"the worker failed with exit code {failed[0]}")

    def _run(self, story: Story, started: Workers) -> None:
        self._say("Orders, with prices that the worker has replied. The worker's log appears in between.")
        for order in story.place():
            self._say(f"  {order}{f', {order.card}' if order.card else ''}")
        self._wait(story, started)
        self._report("The results:", story, ORDERED)
        self._say(f"{story.redrive()} dead letters are redriven with a card that works.")
        self._wait(story, started)
        self._report("After that:", story, sorted(BROKEN))
        self._refund(story, started)
        for job in recurring_jobs():
            result = wait_for_result(job.run_now(), TIMEOUT)
            self._say(
                f"The report of each morning, made now: {result.return_value}. Due next at {job.next_due}."
            )
        self._say(
            "As promised: each price was answered, each order confirmed; each has one invoice, and no number is "
            "left out;\ncards were charged once; reminders are planned for tomorrow, called off, or were sent today."
        )

    def _refund(self, story: Story, started: Workers) -> None:
        """Let a handler pay small refunds, and people large ones."""
        story.send_back()
        self._until(
            lambda: story.refunds() == len(REFUNDED) and not story.refunds(state="automated"), started
        )
        self._say(
            f"Two customers want their money back. {work_off()} large refund(s) paid by hand, after a review."
        )
        if found := wrong_refunds(story):
            raise CommandError("\n  ".join(["not as promised:", *found]))
        self._say(f"{share()}.")

    def _wait(self, story: Story, started: Workers) -> None:
        """Wait until the story is over."""
        self._until(story.is_over, started)

    def _until(self, is_reached: Callable[[], bool], started: Workers) -> None:
        deadline = time.monotonic() + TIMEOUT
        while not is_reached():
            if not started.running():
                raise CommandError("the worker has ended")
            if time.monotonic() > deadline:
                raise CommandError(f"not done after {TIMEOUT:g} s")
            time.sleep(LOOK_EVERY)

    def _report(self, title: str, story: Story, customers: Iterable[str]) -> None:
        self._say(title)
        for line in lines(story, customers):
            self._say(f"  {line}")
        if found := wrong(story):
            raise CommandError("\n  ".join(["not as promised:", *found]))

    def _say(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()
