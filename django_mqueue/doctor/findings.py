"""The form of a finding."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from .. import conf

ERROR, WARNING, INFO = "error", "warning", "info"
SEVERITIES = (ERROR, WARNING, INFO)


@dataclass(frozen=True)
class Finding:
    """Something that an operator should know.

    ``severity``: ``ERROR`` if a promise fails or a part of the queue cannot work; ``WARNING`` if something is slow,
    risky or late; ``INFO`` otherwise. ``what``: a clause. ``why``: why it matters, in sentences. ``repair``: the
    setting, the command or the statement that repairs it. ``check``: the number of the system check, if there is one.
    """

    severity: str
    about: str
    what: str
    why: str
    repair: str
    check: str = ""


def command_line(using: str, *words: str) -> str:
    """Return a command of ``manage.py`` for the shell. It names the database if this is not the default one."""
    option = () if using == conf.database() else ("--database", using)
    return shlex.join(("manage.py", *words, *option))
