"""All verbs of ``manage.py mqueue``, by name."""

from __future__ import annotations

from . import group_changes
from .verbs import Verb

VERBS: dict[str, Verb] = {verb.name: verb for verb in [*group_changes.VERBS]}
