"""The walk of a whole ``runconsumer``: two threads, claims ahead, acks that ride with hand-overs, failures, its end.

How its threads interleave is not the same in each run, and so it has no stages: a test of its own judges it.
"""

from __future__ import annotations

from collections.abc import Iterator

from django_mqueue import ExponentialBackoff, Message, consumer
from django_mqueue.workers.registry import handlers
from django_mqueue.workers.runner import Runner, RunOptions

from .looks import payloads
from .walks import FIRST, WALKER, Scene, walk

NUMBERS, FAILS_ALWAYS, FAILS_ONCE = range(6), 2, 4
THREADS, MAX_ATTEMPTS = 2, 2


@walk(payloads)
def run_until_drained(scene: Scene) -> Iterator[None]:
    def handle(message: Message) -> None:
        scene.heard.append((message.payload, message.attempt))
        if message.payload == FAILS_ALWAYS or (message.payload == FAILS_ONCE and message.attempt == 1):
            raise ValueError("as told")

    at_once = ExponentialBackoff(first=0)
    consumer(scene.topic, group=FIRST, max_attempts=MAX_ATTEMPTS, retry=at_once)(handle)
    options = RunOptions(threads=THREADS, name=WALKER, poll_interval=0.01, drain=True, max_seconds=60)
    runner = Runner(handlers([f"{scene.topic}:{FIRST}"]), options)
    scene.publish(*NUMBERS)
    yield
    runner.run()
