"""All verbs of ``manage.py mqueue``, by name."""

from __future__ import annotations

from . import (
    collecting,
    group_changes,
    health,
    leases,
    message_changes,
    messages,
    publishing,
    server,
    status,
    topics,
    why,
)
from .verbs import Verb

_READING = (status, topics, messages, why, leases, health, server)
_CHANGING = (publishing, message_changes, group_changes, collecting)

VERBS: dict[str, Verb] = {verb.name: verb for subject in _READING + _CHANGING for verb in subject.VERBS}
