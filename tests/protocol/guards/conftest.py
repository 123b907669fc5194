from __future__ import annotations

from tests.support.fixtures import with_settings
from tests.support.subscribers import QUICK

quick = with_settings(autouse=False, MQUEUE=QUICK)
kept = with_settings(autouse=False, MQUEUE={**QUICK, "RETENTION": 3600})
"""The quick settings, but nothing is deleted."""
