"""No test fails because the machine is slow: limits of waits are long, and no test asserts an upper limit on time."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1]
MEASURED = ("benchmarks",)
"""This folder measures time."""

LEAST = 30
"""The shortest allowed limit of a wait, in seconds."""

WAITS = {
    "wait_until",
    "gather",
    "poll_until",
    "consume",
    "result",
    "Barrier",
    "acquire",
    "join",
    "communicate",
}
PLACES = {"result": 0, "join": 0, "acquire": 1, "communicate": 1, "Barrier": 2}
"""The place of the limit among the positional arguments."""


def modules() -> list[Path]:
    found = sorted(HERE.rglob("*.py"))
    return [path for path in found if path.relative_to(HERE).parts[0] not in MEASURED]


def is_short(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and node.value < LEAST


def short_limits(text: str) -> Iterator[int]:
    """Yield the lines with a short limit of a wait that must succeed, or with an upper limit on measured time."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).rpartition(".")[2]
            limits = [given.value for given in node.keywords if given.arg in ("seconds", "timeout")]
            if name in PLACES:
                limits += node.args[PLACES[name] :][:1]
            if name in WAITS and any(map(is_short, limits)):
                yield node.lineno
        if not isinstance(node, ast.Assert):
            continue
        for part in ast.walk(node.test):
            if isinstance(part, ast.Call) and ast.unparse(part.func).endswith(".wait"):
                if any(map(is_short, part.args)):
                    yield node.lineno
            elif isinstance(part, ast.Compare):
                places = pairwise([part.left, *part.comparators])
                for (left, _), order in zip(places, part.ops, strict=True):
                    if isinstance(order, (ast.Lt, ast.LtE)) and "monotonic() -" in ast.unparse(left):
                        yield node.lineno


@pytest.mark.parametrize(
    "text",
    [
        "wait_until(done, 'it is done', seconds=5)",
        "thread.result(timeout=5)",
        "future.result(5)",
        "thread.join(10)",
        "lock.acquire(True, 5)",
        "process.communicate(None, 5)",
        "threading.Barrier(3, None, 10)",
        "together = threading.Barrier(3, timeout=10)",
        "assert worker.wait(3) == 0",
        "assert time.monotonic() - begun < 5",
        "assert 0.5 <= time.monotonic() - begun < 5",
    ],
)
def test_short_limits_are_seen(text: str) -> None:
    assert list(short_limits(text)) == [1]


@pytest.mark.parametrize(
    "text",
    [
        "wait_until(done, 'it is done')",
        "wait_until(done, 'it is done', seconds=2 * PATIENCE)",
        "pause.wait(0.02)",
        "threading.Barrier(3)",
        "consume(subscription, 3)",
        "', '.join(names)",
        "assert worker.wait() == 0",
        "assert time.monotonic() - begun >= 0.5",
    ],
)
def test_what_depends_on_no_speed_is_allowed(text: str) -> None:
    assert list(short_limits(text)) == []


def test_no_test_has_a_short_limit() -> None:
    found = {
        f"{path.relative_to(HERE)}:{line}" for path in modules() for line in short_limits(path.read_text())
    }
    assert found == set(), "wait for PATIENCE (tests/support/waiting.py), and assert counts or rows"
