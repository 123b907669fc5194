"""A headless browser and its driver, for the tests of the pages."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import EnvironmentProblem
from .system_packages import Need, program, provide


@dataclass(frozen=True)
class Browser:
    """Paths of the two programs. Both come from one source package, so their versions match."""

    chromium: str
    driver: str


def for_browser() -> list[Need]:
    return [
        Need("the Chromium browser", "chromium", lambda: bool(program("chromium"))),
        Need("Chromium's driver", "chromium-driver", lambda: bool(program("chromedriver"))),
    ]


def browser() -> Browser:
    """Return the browser, and install it if it is missing. Raises ``EnvironmentProblem`` if that fails."""
    provide(for_browser())
    chromium, driver = program("chromium"), program("chromedriver")
    if not chromium or not driver:
        raise EnvironmentProblem("chromium or chromedriver is installed, but not in PATH or sbin")
    return Browser(chromium, driver)
