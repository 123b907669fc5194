"""The pictures of the documentation, and the other pages of a shop's day, light and dark.

``python3 tests/pictures.py`` saves those that the documentation shows in ``docs/images``. The test asserts that no page
fails, logs an error, or is wider than its window. It shows a part of the day.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from django.test import override_settings

from django_mqueue.models import Message
from tests.support.browser import BrowserCase

from . import day

WIDTH = 1280

PAGES = {
    "overview": "",
    "topic": "topic/page/?topic=orders&span=day",
    "group": "consumergroup/page/?topic=orders&group=shipping",
    "messages": "message/?topic=orders&group=shipping",
    "message": "message/{message}/change/",
    "letters": "deadletter/errors/?topic=payments",
    "letter": "deadletter/letter/?offset={letter}",
    "subscribers": "subscriberheartbeat/members/?topic=payments&group=ledger",
    "reset": "consumergroup/reset/?topic=orders&group=shipping&to=earliest",
}
SHOWN = ("overview", "group", "message", "letters", "letter")
HEIGHT = 1_440
"""Maximum height of a picture in pixels: it shows the upper part of a long page."""


@override_settings(MQUEUE={"RETENTION": 7 * 86_400})
class TestPictures(BrowserCase):
    folder: Path
    discarded: Path
    hours: int

    @pytest.fixture(autouse=True)
    def _folders(self, tmp_path: Path) -> None:
        kept = os.environ.get("MQUEUE_PICTURES")
        self.folder, self.discarded, self.hours = Path(kept or tmp_path), tmp_path, 24 if kept else 4

    def test_a_day_at_the_shop(self) -> None:
        day.make(self.hours)
        names = {
            "message": Message.objects.filter(topic="orders").order_by("-offset")[40].offset,
            "letter": Message.objects.filter(topic="payments_dlq").order_by("-offset")[0].offset,
        }
        self.page.width(WIDTH)
        for name, path in PAGES.items():
            for dark in (False, True):
                self.page.dark(dark)
                day.alive()
                self.page.open(f"/admin/django_mqueue/{path.format(**names)}")
                assert self.page.overflow() <= 0, name
                assert self.page.complaints() == [], name
                folder = self.discarded if dark or name not in SHOWN else self.folder
                self.page.picture(folder / f"admin-{name}.png", HEIGHT)
