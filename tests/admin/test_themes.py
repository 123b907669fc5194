"""The pages in a browser with themes for Django's admin, each under the strictest policy that the theme allows."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from django.contrib.auth.models import User
from django.test import Client, override_settings
from selenium.webdriver import Chrome

from django_mqueue import inspect
from tests.content_security import POLICY
from tests.features.inspect.scene import GROUP, TOPIC, one_of_each
from tests.support.browser import Page
from tests.support.processes import Workers, wait_until

from .operating import url_of

pytestmark = [pytest.mark.long, pytest.mark.django_db(transaction=True)]

THEMES = {
    "jazzmin": POLICY,
    # Its Alpine.js evaluates attributes, and hides the page until it has.
    "unfold": f"{POLICY}; script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; img-src 'self' data:",
}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture(params=sorted(THEMES))
def page(request: pytest.FixtureRequest, chrome: Chrome) -> Iterator[Page]:
    """The browser, logged in to a server with the theme."""
    theme: str = request.param
    pytest.importorskip(theme)
    one_of_each()
    User.objects.create_superuser("ada", password="lovelace")
    base = f"http://127.0.0.1:{free_port()}"
    with Workers() as workers:
        workers.run(
            ("django", "runserver", "--noreload", "--insecure", "--verbosity", "0"),
            base.removeprefix("http://"),
            DJANGO_SETTINGS_MODULE="tests.support.theme_settings",
            TEST_THEME=theme,
            TEST_POLICY=THEMES[theme],
        )

        def answers() -> bool:
            try:
                return bool(urllib.request.urlopen(f"{base}/admin/login/").status == 200)
            except urllib.error.URLError:
                return False

        wait_until(answers, "the server with the theme")
        with override_settings(SESSION_COOKIE_SECURE=False):
            client = Client()
            client.force_login(User.objects.get(username="ada"))
        page = Page(chrome, base)
        page.open("/admin/jsi18n/")
        chrome.add_cookie({"name": "sessionid", "value": client.cookies["sessionid"].value})
        page.theme = theme  # type: ignore[attr-defined]
        yield page


def test_pages_and_buttons(page: Page) -> None:
    theme: str = page.theme  # type: ignore[attr-defined]
    message = inspect.messages(TOPIC, group=GROUP, status="pending").messages[0].offset
    of = f"topic={TOPIC}&group={GROUP}"
    for name, path in {
        "landing": "/admin/django_mqueue/",
        "overview": url_of("overview"),
        "topic": f"{url_of('topic')}?topic={TOPIC}",
        "group": f"{url_of('group')}?{of}",
        "subscribers": f"{url_of('group_subscribers')}?{of}",
        "messages": f"{url_of('message_changelist')}?{of}",
        "message": url_of("message_change", message),
        "letters": f"{url_of('deadletter_list')}?topic={TOPIC}",
        "leases": url_of("partitionlease_changelist"),
        "reset": f"{url_of('reset_group')}?{of}",
        "actions": url_of("actions"),
    }.items():
        for width in (1280, 400):
            page.width(width)
            page.open(path)
            assert page.find(".mqueue-navigation").is_displayed(), name
            assert page.find("#mqueue-main, #mqueue-overview, #changelist").size["height"] > 50, name
            own = [one for one in page.complaints() if "django_mqueue/" in one.partition(" ")[2]]
            assert own == [], name
            save(page, f"{theme}-{name}-{width}")
    page.width(1280)
    page.open(f"{url_of('group')}?{of}")
    page.click_link("Pause")
    page.type("#mqueue-reason", "a theme")
    page.click_link("Pause")
    assert inspect.groups(TOPIC)[0].paused
    page.click_link("Resume")
    page.click_link("Resume")
    assert not inspect.groups(TOPIC)[0].paused
    page.open(url_of("actions"))
    assert "Reason: a theme" in page.text_of("#mqueue-main")
    assert "ago" in page.text_of("#mqueue-main time") or "now" in page.text_of("#mqueue-main time")


def save(page: Page, name: str) -> None:
    """Save the page if ``MQUEUE_SCREENSHOTS`` names a folder. The theme's own errors do not count."""
    page.complaints()
    page.save(name)
