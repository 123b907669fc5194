"""``manage.py mqueue worklist``."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from typing import Any
from unittest import mock
from unittest.mock import Mock

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, OperationalError
from django.test import override_settings
from django.utils import timezone

from django_mqueue import MQueueError, Topic
from django_mqueue.service import topics
from django_mqueue.worklists import WorkItem, Worklist, figures

from .conftest import Declare
from .lists import an_item, fails, newest, refunded, steps_of, team, user

pytestmark = pytest.mark.django_db


def mqueue(*arguments: object) -> str:
    out = StringIO()
    call_command("mqueue", "worklist", *map(str, arguments), stdout=out)
    return out.getvalue()


def listed(*arguments: object) -> Any:
    return json.loads(mqueue(*arguments, "--json"))


def test_list_by_state_user_and_team(refunds: type[Worklist]) -> None:
    ann, accounting = user("ann", "take"), team("accounting")
    mine, theirs, ended = an_item(), an_item(), an_item()
    mine.take(by=ann)
    theirs.assign(to=accounting)
    ended.cancel()
    assert [row["item"] for row in listed("list", "refunds")] == [mine.pk, theirs.pk]
    assert [row["item"] for row in listed("list", "refunds", "--state", "cancelled")] == [ended.pk]
    assert [row["item"] for row in listed("list", "--user", "ann")] == [mine.pk]
    assert [row["item"] for row in listed("list", "--team", "accounting")] == [theirs.pk]
    assert f"item={mine.pk}  state=assigned" in mqueue("list", "refunds")


def test_the_life_of_an_item(refunds: type[Worklist]) -> None:
    user("ann", "take"), user("rita", "review")
    item = an_item(50)
    assert mqueue("take", item.pk, "--by", "ann") == f"item {item.pk}: assigned\n"
    mqueue("delay", item.pk, "--until", "2099-01-01", "--by", "ann")
    mqueue("take", item.pk, "--by", "ann")
    mqueue("move", item.pk, "--state", "review", "--comment", "look")
    mqueue("comment", item.pk, "--comment", "soon")
    mqueue("finish", item.pk, "--by", "rita")
    assert refunded() == [50]
    assert [row["step"] for row in listed("show", item.pk)[1:]] == steps_of(item)
    assert "by=ann" in mqueue("show", item.pk)


def test_show_masks_what_the_mask_of_the_source_hides(refunds: type[Worklist]) -> None:
    item = an_item(10)
    mask = {"refund-requests": {"MASK": "tests.features.worklists.test_pages.mask"}}
    with override_settings(MQUEUE={"TOPICS": mask}):
        masked, shown = listed("show", item.pk)[0], listed("show", item.pk, "--unmask")[0]
    assert (masked["payload"], masked["result"]) == ({"amount": "***"}, "masked")
    assert (shown["payload"], shown["result"]) == ({"amount": 10}, {"refunded": 10})


@pytest.mark.parametrize("error", [RuntimeError, ValueError, MQueueError, IntegrityError])
def test_an_error_of_the_work_is_masked_and_logged(
    refunds: type[Worklist], error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    item = an_item(50)
    item.take(by=user("ann", "take"))
    fails.append(error("the IBAN is DE02"))
    mask = {"refund-requests": {"MASK": "tests.features.worklists.test_pages.mask"}}
    with (
        override_settings(MQUEUE={"TOPICS": mask}),
        pytest.raises(
            CommandError, match=rf"^item {item.pk}: its work failed; the error is masked, see the log$"
        ),
    ):
        mqueue("finish", item.pk, "--by", "ann")
    assert f"{error.__name__}: the IBAN is DE02" in caplog.text


def test_several_items_and_a_refusal(refunds: type[Worklist]) -> None:
    user("ann", "take")
    first, second = an_item(), an_item()
    second.cancel()
    with pytest.raises(CommandError, match=rf"item {second.pk} is cancelled: assign is allowed in"):
        mqueue("assign", first.pk, second.pk, "--user", "ann")
    first.refresh_from_db()
    assert first.state == "assigned"
    mqueue("unassign", first.pk)
    mqueue("cancel", first.pk)
    assert newest().state == "cancelled"


def test_a_project_that_declares_topics_need_not_declare_that_of_the_items(
    declare: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "_declared", {"refund-requests": Mock(Topic)})
    declare()
    assert topics.problem_of("worklist.refunds") is None
    assert topics.problem_of("worklist.refunds_dlq") is None
    assert "is not declared" in str(topics.problem_of("worklist.returns"))


def test_figures(refunds: type[Worklist]) -> None:
    an_item(10), an_item(50)
    still_open, week = listed("figures", "refunds")
    assert (still_open["unassigned"], still_open["overdue"]) == (1, 0)
    assert (week["finished"], week["by_handler"], week["share"]) == (1, 1, 1.0)


def test_overdue_items_set_the_exit_code(declare: Declare) -> None:
    declare(due=60)
    item = an_item(50)
    mqueue("figures", "refunds", "--fail-if-overdue", 1)
    WorkItem.objects.filter(pk=item.pk).update(due_at=item.created_at)
    mqueue("figures", "refunds", "--fail-if-overdue", 2)
    with pytest.raises(CommandError, match="1 items of refunds are overdue"):
        mqueue("figures", "refunds", "--fail-if-overdue", 1)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["list"], "give worklist, assignee, team, linked or message_id"),
        (["list", "refund"], "no worklist 'refund' is declared"),
        (["list", "--user", "nobody"], "there is no user 'nobody'"),
        (["take", "404", "--by", "ann"], "there is no item 404"),
        (
            ["delay", "404", "--until", "soon"],
            "--until: must be an ISO 8601 time such as 2026-03-01T08:00, not 'soon'",
        ),
        (["show", "404"], "there is no item 404"),
    ],
)
def test_errors(refunds: type[Worklist], arguments: list[str], error: str) -> None:
    user("ann", "take")
    with pytest.raises(CommandError, match=error):
        mqueue(*arguments)


@pytest.mark.parametrize(
    ("setting", "error"),
    [
        ({"DATABASE": "typo"}, r"""MQUEUE\["DATABASE"\] 'typo' is no entry of DATABASES"""),
        ("typo", "MQUEUE must be a dictionary"),
    ],
)
def test_a_wrong_setting(refunds: type[Worklist], setting: Any, error: str) -> None:
    with override_settings(MQUEUE=setting), pytest.raises(CommandError, match=error):
        mqueue("list", "refunds")


def test_a_limit_is_at_least_one(refunds: type[Worklist]) -> None:
    with pytest.raises(CommandError, match="--limit: must be a whole number of at least 1, not '-1'"):
        mqueue("list", "refunds", "--limit=-1")


def test_a_database_error_keeps_the_refusals(refunds: type[Worklist]) -> None:
    """The second item's step fails with a database error."""
    first, second = an_item(), an_item()
    first.cancel()

    def cancel(self: WorkItem, *args: Any, **kwargs: Any) -> None:
        if self.pk == second.pk:
            raise OperationalError(2013, "Lost connection")
        cancelled(self, *args, **kwargs)

    cancelled = WorkItem.cancel
    with (
        mock.patch.object(WorkItem, "cancel", cancel),
        pytest.raises(
            CommandError, match=rf"item {first.pk} is cancelled.*\ndatabase error: .*Lost connection"
        ),
    ):
        mqueue("cancel", first.pk, second.pk)


def test_a_limit_above_the_count_counts_as_the_count(
    refunds: type[Worklist], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Overdue items are counted up to a limit."""
    monkeypatch.setattr(figures, "COUNTED", 1)
    item = an_item()
    WorkItem.objects.filter(pk=item.pk).update(due_at=timezone.now() - timedelta(hours=1))
    with pytest.raises(CommandError, match=r"1\+ items of refunds are overdue"):
        mqueue("figures", "refunds", "--fail-if-overdue", "20000")
