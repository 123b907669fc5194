"""The command, and a test's own verb, run in the test's process."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from django_mqueue.spark.cli import program
from django_mqueue.spark.cli.verb import Job, Verb
from django_mqueue.spark.cli.verbs import VERBS


def verb(run: Callable[[Job], int], *, answers: bool = False) -> Verb:
    return Verb(
        "try", "Try it.", lambda parser: parser.add_argument("--many", type=int), run, answers=answers
    )


def exit_code(*arguments: str, verbs: Sequence[Verb] = VERBS) -> int:
    """Run the command. Return its exit code, also if the parser exits."""
    try:
        return program.main(list(arguments), verbs)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else -1


def main(*arguments: str, run: Callable[[Job], int] = lambda job: 0, answers: bool = False) -> int:
    """Do the same for the verb ``try``, whose work is ``run``."""
    return exit_code("try", *arguments, verbs=[verb(run, answers=answers)])


def failing(error: Exception) -> Callable[[Job], int]:
    def run(job: Job) -> int:
        raise error

    return run
