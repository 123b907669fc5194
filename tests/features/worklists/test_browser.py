"""People work on items in a real browser, wide and narrow: take, delay, review, finish, and what is overdue."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from selenium.webdriver.common.by import By

from django_mqueue.testing import drain
from django_mqueue.worklists import State
from tests.support.browser import BrowserCase, chrome
from tests.support.shop.models import Sale

from .conftest import Declare
from .lists import an_item, newest, steps_of, team, user

__all__ = ["chrome"]

WORK = "/admin/mqueue_worklists/workitem/"


class TestWorklistsInABrowser(BrowserCase):
    @pytest.fixture(autouse=True)
    def _declare(self, declare: Declare, transactional_db: None) -> None:
        declare(
            states=[State("review", required=True, own=False)], due=timedelta(days=2), attributes=["country"],
            escalate_to="supervisors",
        )  # fmt: skip

    def log_in(self, who: User) -> None:
        self.page.driver.delete_all_cookies()
        who.set_password("only for tests")
        who.save()
        self.page.log_in(who.username, "only for tests")

    def test_an_item_is_taken_delayed_reviewed_and_finished(self) -> None:
        page = self.page
        ann, rita = user("ann", "take"), user("rita", "review")
        item = an_item(50, sale=self.a_sale(), country="DE")
        an_item(60, country="FR")

        self.log_in(ann)
        page.click_link("Work items")
        page.click_link("Unassigned")
        page.save_all_ways("worklist")
        page.click_link(item.title)
        page.save_all_ways("work-item")
        page.click_link("Take")
        assert "1 item changed: Take." in page.text_of(".messagelist")
        assert "assigned" in page.text_of(".mqueue-item-state")

        page.click_link("Delay")
        page.find("[name=until]").clear()
        page.driver.execute_script("document.querySelector('[name=until]').value = '2099-01-02T03:04:05'")
        page.click_link("Delay")
        assert "returns" in page.text_of(".mqueue-item-state")
        page.click_link("Take")

        page.click_link("Move on")
        page.find("[name=comment]").send_keys("the parcel is back")
        page.click_link("Move on")
        assert "review" in page.text_of(".mqueue-item-state")
        assert "the parcel is back" in page.text_of(".mqueue-history")

        self.log_in(rita)
        page.open(f"{WORK}{item.pk}/change/")
        page.click_link("Finish")
        page.click_link("Finish")
        assert "finished" in page.text_of(".mqueue-item-state")
        assert steps_of(item) == ["created", "taken", "delayed", "taken", "moved", "finished"]
        page.open(f"{WORK}figures/refunds/")
        page.save_all_ways("worklist-figures")
        assert page.complaints() == []

    def a_sale(self) -> int:
        return Sale.objects.create(number=7).number

    def test_many_items_are_assigned_and_overdue_ones_escalate(self) -> None:
        page = self.page
        boss, ann = user("boss", "assign"), user("ann", "take")
        supervisors = team("supervisors")
        boss.groups.add(supervisors)
        for amount in (50, 60, 70):
            an_item(amount)

        self.log_in(boss)
        page.open(f"{WORK}?view=unassigned")
        page.driver.find_element(By.ID, "action-toggle").click()
        page.driver.execute_script("document.querySelector('[name=action]').value = 'assign'")
        page.click("[name=index]")
        page.driver.execute_script(f"document.querySelector('[name=user]').value = '{ann.pk}'")
        page.click_link("Assign")
        assert "3 items changed: Assign." in page.text_of(".messagelist")
        assert newest().assignee == ann

        drain(until=timedelta(days=3))
        page.open(f"{WORK}?view=team")
        assert page.text_of("#result_list").count("unassigned") == 3
        assert page.complaints() == []
