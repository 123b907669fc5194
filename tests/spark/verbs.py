"""A test's own verb, run in the test's process."""

from __future__ import annotations

from collections.abc import Callable

from django_mqueue.spark.cli import program
from django_mqueue.spark.cli.verb import Job, Verb


def verb(run: Callable[[Job], int], *, answers: bool = False) -> Verb:
    return Verb(
        "try", "Try it.", lambda parser: parser.add_argument("--many", type=int), run, answers=answers
    )


def main(*arguments: str, run: Callable[[Job], int] = lambda job: 0, answers: bool = False) -> int:
    """Return the exit code, also if the parser exits."""
    try:
        return program.main(["try", *arguments], [verb(run, answers=answers)])
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else -1


def failing(error: Exception) -> Callable[[Job], int]:
    def run(job: Job) -> int:
        raise error

    return run
