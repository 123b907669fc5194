from __future__ import annotations

from tests.support.fixtures import with_settings

from .workers import PATIENT

patient = with_settings(MQUEUE=PATIENT)
