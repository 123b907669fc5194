"""Settings of the worker processes."""

from __future__ import annotations

from tests.support.worker_settings import *  # noqa: F403
from tests.support.worker_settings import INSTALLED_APPS as _APPS

INSTALLED_APPS = [*(app for app in _APPS if app != "tests.support.shop"), "tests.conformance.worker_app"]
