"""All verbs of ``manage.py mqueue``, by name."""

from __future__ import annotations

from . import collecting, dead_letters, group_changes, message_changes, publishing
from .verbs import Verb

_SUBJECTS = (publishing, message_changes, dead_letters, group_changes, collecting)

VERBS: dict[str, Verb] = {verb.name: verb for subject in _SUBJECTS for verb in subject.VERBS}
