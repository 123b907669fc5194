"""Print all guards: ``python -m tests.protocol.guards.page``."""

from __future__ import annotations

from .mutations import PARTS
from .mutations.mutation import Mutation

HEAD = "| Guard | What goes wrong without it | Kept in | Fails without it |\n|---|---|---|---|\n"


def tables() -> str:
    return "\n".join(f"## {part}\n\n{HEAD}{''.join(map(row, guards))}" for part, guards in PARTS.items())


def row(mutation: Mutation) -> str:
    where = dict.fromkeys(f"`{edit.file}`" for edit in mutation.edits)
    tests = ", ".join(f"`{test}`" for test in mutation.tests)
    return f"| {mutation.guard} | {mutation.without} | {', '.join(where)} | {tests} |\n"


if __name__ == "__main__":
    print(tables(), end="")
