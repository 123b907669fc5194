"""Walks of a whole ``runconsumer``, one of them with atomic handlers.

They cover two threads, claims ahead, acks that share a commit with hand-overs, failures, and the end of the run. The
threads interleave differently in each run, so the walks have no stages. ``test_runner.py`` checks them.
"""

from __future__ import annotations

from collections.abc import Iterator

from django_mqueue import ExponentialBackoff, Message, consumer, publish
from django_mqueue.workers.registry import handlers
from django_mqueue.workers.runner import Runner, RunOptions

from .looks import Seen, payloads
from .walks import FIRST, WALKER, Scene, walk

NUMBERS, FAILS_ALWAYS, FAILS_ONCE = range(6), 2, 4
THREADS, MAX_ATTEMPTS = 2, 2
AT_ONCE = ExponentialBackoff(first=0)


@walk(payloads)
def run_until_drained(scene: Scene) -> Iterator[None]:
    def handle(message: Message) -> None:
        scene.heard.append((message.payload, message.attempt))
        if message.payload == FAILS_ALWAYS or (message.payload == FAILS_ONCE and message.attempt == 1):
            raise ValueError("as told")

    consumer(scene.topic, group=FIRST, max_attempts=MAX_ATTEMPTS, retry=AT_ONCE)(handle)
    runner = runner_of(scene)
    scene.publish(*NUMBERS)
    yield
    runner.run()


def runner_of(scene: Scene) -> Runner:
    options = RunOptions(threads=THREADS, name=WALKER, poll_interval=0.01, drain=True, max_seconds=60)
    return Runner(handlers([f"{scene.topic}:{FIRST}"]), options)


FEW = range(3)


def effects(topic: str) -> Seen:
    """Return the payloads that atomic handlers have published."""
    return payloads(effects_of(topic))


def effects_of(topic: str) -> str:
    return f"{topic}-effects"


@walk(effects)
def run_atomic_handlers_until_drained(scene: Scene) -> Iterator[None]:
    """Each handler publishes one effect. Message 1 fails at its first attempt, after its effect."""

    def handle(message: Message) -> None:
        scene.heard.append((message.payload, message.attempt))
        publish(effects_of(scene.topic), message.payload, key="k")
        if message.payload == FAILS_ALWAYS or (message.payload == 1 and message.attempt == 1):
            raise ValueError("as told")

    consumer(scene.topic, group=FIRST, max_attempts=MAX_ATTEMPTS, retry=AT_ONCE, atomic=True)(handle)
    runner = runner_of(scene)
    scene.publish(*FEW)
    yield
    runner.run()
