"""Settings for mypy: the tests' settings, with each app whose models mypy needs."""

from __future__ import annotations

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "example_project.flights", "example_project.shop"]
