"""Settings of worker processes with receivers. The other settings are the same as in other tests."""

from __future__ import annotations

from tests.support.worker_settings import *  # noqa: F403
from tests.support.worker_settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.features.signals.worker_app"]
