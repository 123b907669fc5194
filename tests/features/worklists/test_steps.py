"""The steps of people: what each does, who may take it, and the errors."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import transaction
from django.test import override_settings

from django_mqueue.testing import drain, published
from django_mqueue.worklists import ItemChanged, State, TransitionNotAllowed, WorkItem, Worklist, bulk
from tests.support.shop.models import Clerk

from .conftest import Declare
from .lists import again, an_item, fails, newest, refunded, steps_of, team, user

pytestmark = pytest.mark.django_db


class TestTake:
    def test_it_assigns_the_item(self, refunds: type[Worklist]) -> None:
        ann, item = user("ann", "take"), an_item()
        item.take(by=ann)
        assert (again(item).state, again(item).assignee) == ("assigned", ann)
        step = item.history.last()
        assert step is not None
        assert (step.step, step.actor, step.before, step.after) == ("taken", ann, "unassigned", "assigned")

    def test_each_step_is_a_message(self, refunds: type[Worklist]) -> None:
        item = an_item()
        item.take(by=user("ann", "take"), comment="mine")
        payload = published("worklist.refunds")[-1].payload
        assert payload["step"] == "taken"
        assert (payload["by"], payload["assignee"], payload["comment"]) == ("ann", "ann", "mine")

    @override_settings(MQUEUE={"TOPICS": {"worklist.refunds": {"REQUIRE_TRANSACTION": True}}})
    def test_a_step_brings_the_transaction_that_its_message_needs(self, refunds: type[Worklist]) -> None:
        item = an_item()
        item.take(by=user("ann", "take"))
        assert published("worklist.refunds")[-1].payload["step"] == "taken"

    def test_a_step_is_rolled_back_with_its_message(self, refunds: type[Worklist]) -> None:
        item = an_item()
        with transaction.atomic():
            item.take(by=user("ann", "take"))
            transaction.set_rollback(True)
        assert again(item).state == "unassigned"
        assert steps_of(again(item)) == ["created"]
        assert len(published("worklist.refunds")) == 1

    def test_the_second_of_two_people_gets_a_clear_message(self, refunds: type[Worklist]) -> None:
        ann, bob, item = user("ann", "take"), user("bob", "take"), an_item()
        seen_by_bob = again(item)
        item.take(by=ann)
        with pytest.raises(ItemChanged, match="it is assigned to ann; nothing was changed"):
            seen_by_bob.take(by=bob)
        assert again(item).assignee == ann
        assert steps_of(item) == ["created", "taken"]

    def test_an_item_that_is_taken_cannot_be_taken(self, refunds: type[Worklist]) -> None:
        item = an_item()
        item.take(by=user("ann", "take"))
        with pytest.raises(
            TransitionNotAllowed,
            match=r"is assigned to ann: take is allowed in unassigned, delayed; allowed now: comment$",
        ):
            item.take(by=user("bob", "take"))

    def test_it_needs_the_permission(self, refunds: type[Worklist]) -> None:
        item = an_item()
        with pytest.raises(
            TransitionNotAllowed,
            match=r"eve may not take item \d+: it needs the permission 'mqueue_worklists.take_refunds'",
        ):
            item.take(by=user("eve", "view"))

    def test_the_permission_of_another_worklist_does_not_count(self, declare: Declare) -> None:
        declare()
        declare(Worklist, "checks", source="checks-wanted")
        with pytest.raises(TransitionNotAllowed, match="needs the permission"):
            an_item().take(by=user("ann", "take", worklist="checks"))


class TestAssign:
    def test_to_a_user(self, refunds: type[Worklist]) -> None:
        ann, item = user("ann", "take"), an_item()
        item.assign(to=ann, by=user("boss", "assign"), comment="please")
        assert (again(item).state, again(item).assignee) == ("assigned", ann)

    def test_to_a_team(self, refunds: type[Worklist]) -> None:
        accounting, item = team("accounting"), an_item()
        item.take(by=user("ann", "take"))
        item.assign(to=accounting)
        found = again(item)
        assert (found.state, found.assignee, found.team) == ("unassigned", None, accounting)

    def test_it_needs_the_permission(self, refunds: type[Worklist]) -> None:
        ann, item = user("ann", "take"), an_item()
        with pytest.raises(TransitionNotAllowed, match="assign_refunds"):
            item.assign(to=ann, by=ann)

    def test_other_objects_are_refused(self, refunds: type[Worklist]) -> None:
        item = an_item()
        with pytest.raises(TypeError, match="to must be a user or a group of users, not str"):
            item.assign(to="ann")

    def test_unassign(self, refunds: type[Worklist]) -> None:
        item = an_item()
        item.take(by=user("ann", "take"))
        item.unassign(by=user("boss", "assign"))
        assert (again(item).state, again(item).assignee) == ("unassigned", None)


class TestHandBack:
    def test_the_assignee_hands_back(self, refunds: type[Worklist]) -> None:
        ann, item = user("ann", "take"), an_item()
        item.take(by=ann)
        item.hand_back(by=ann, comment="too hard")
        assert (again(item).state, again(item).assignee) == ("unassigned", None)

    def test_others_cannot(self, refunds: type[Worklist]) -> None:
        item = an_item()
        item.take(by=user("ann", "take"))
        with pytest.raises(TransitionNotAllowed, match="only the user to whom the item is assigned"):
            item.hand_back(by=user("bob", "take"))


class TestFinish:
    def test_it_does_the_work_and_keeps_its_result(self, refunds: type[Worklist]) -> None:
        ann, item = user("ann", "take"), an_item(50)
        item.take(by=ann)
        item.finish(by=ann, comment="done")
        found = again(item)
        assert (found.state, found.is_open, found.is_automated) == ("finished", False, False)
        assert found.result == {"refunded": 50}
        assert found.ended_at is not None
        assert refunded() == [50]

    def test_a_given_result_is_kept_instead(self, refunds: type[Worklist]) -> None:
        item = an_item()
        item.assign(to=user("ann", "take"))
        item.finish(result={"by": "hand"})
        assert again(item).result == {"by": "hand"}

    def test_work_that_fails_changes_nothing(self, refunds: type[Worklist]) -> None:
        ann, item = user("ann", "take"), an_item()
        item.take(by=ann)
        fails.append(RuntimeError("the bank is closed"))
        with pytest.raises(RuntimeError, match="the bank is closed"):
            item.finish(by=ann)
        assert item.state == "assigned"
        assert again(item).state == "assigned"
        assert refunded() == []
        item.finish(by=ann)
        assert refunded() == [50]

    def test_a_result_that_is_no_json_is_refused(self, refunds: type[Worklist]) -> None:
        item = an_item()
        item.assign(to=user("ann", "take"))
        with pytest.raises(TypeError, match="result must be a JSON value"):
            item.finish(result={1, 2})
        with pytest.raises(ValueError, match="result may hold whole numbers of at most 64 bits"):
            item.finish(result=[2**64])
        assert again(item).state == "assigned"

    def test_others_cannot_finish(self, refunds: type[Worklist]) -> None:
        item = an_item()
        item.take(by=user("ann", "take"))
        with pytest.raises(TransitionNotAllowed, match="the item is not assigned to you"):
            item.finish(by=user("bob", "take"))

    def test_an_ended_item_allows_only_comments(self, refunds: type[Worklist]) -> None:
        item = an_item()
        item.assign(to=user("ann", "take"))
        item.finish()
        with pytest.raises(
            TransitionNotAllowed, match=r"is finished: cancel is allowed in .*; allowed now: comment$"
        ):
            item.cancel()
        item.comment("thanks")
        assert steps_of(item)[-1] == "commented"

    def test_of_two_who_finish_at_once_one_works(self, refunds: type[Worklist]) -> None:
        item = an_item()
        item.assign(to=user("ann", "take"))
        other = again(item)
        item.finish()
        with pytest.raises(ItemChanged, match="it is finished"):
            other.finish()
        assert refunded() == [50]


class TestDelay:
    def test_the_item_returns_to_its_assignee(self, refunds: type[Worklist]) -> None:
        ann, item = user("ann", "take"), an_item()
        item.take(by=ann)
        item.delay(until=timedelta(days=3), by=ann)
        assert again(item).state == "delayed"
        drain(until=timedelta(days=2))
        assert again(item).state == "delayed"
        drain(until=timedelta(days=4))
        found = again(item)
        assert (found.state, found.assignee, found.delayed_until) == ("assigned", ann, None)
        assert steps_of(item) == ["created", "taken", "delayed", "returned"]

    def test_an_unassigned_item_returns_unassigned(self, refunds: type[Worklist]) -> None:
        item = an_item()
        item.delay(until=3600)
        drain(until=timedelta(hours=2))
        assert again(item).state == "unassigned"

    def test_a_delay_that_was_replaced_has_no_effect(self, refunds: type[Worklist]) -> None:
        ann, item = user("ann", "take"), an_item()
        item.delay(until=timedelta(hours=1))
        item.take(by=ann)
        item.delay(until=timedelta(days=9), by=ann)
        drain(until=timedelta(days=1))
        assert again(item).state == "delayed"

    def test_until_must_lie_in_the_future(self, refunds: type[Worklist]) -> None:
        item = an_item()
        with pytest.raises(ValueError, match="until must lie in the future"):
            item.delay(until=0)

    def test_a_person_can_take_it_before(self, refunds: type[Worklist]) -> None:
        item = an_item()
        item.delay(until=timedelta(hours=1))
        item.take(by=user("ann", "take"))
        assert again(item).delayed_until is None
        drain(until=timedelta(hours=2))
        assert steps_of(item) == ["created", "delayed", "taken"]


class TestReview:
    def test_the_way_through_review(self, refunds: type[Worklist]) -> None:
        ann, item = user("ann", "take"), an_item()
        item.take(by=ann)
        item.move("review", by=ann)
        assert (again(item).state, again(item).assignee) == ("review", ann)
        item.finish(by=user("rita", "review"))
        assert again(item).state == "finished"

    def test_a_reviewer_sends_it_back_to_its_assignee(self, refunds: type[Worklist]) -> None:
        ann, item = user("ann", "take"), an_item()
        item.take(by=ann)
        item.move("review", by=ann)
        item.move("assigned", by=user("rita", "review"), comment="which account?")
        assert (again(item).state, again(item).assignee) == ("assigned", ann)

    def test_it_needs_the_permission(self, refunds: type[Worklist]) -> None:
        ann, item = user("ann", "take"), an_item()
        item.take(by=ann)
        item.move("review", by=ann)
        with pytest.raises(
            TransitionNotAllowed, match=r"it needs the permission 'mqueue_worklists.review_refunds'"
        ):
            item.finish(by=ann)

    def test_nobody_reviews_their_own_item_where_the_worklist_says_so(self, declare: Declare) -> None:
        declare(states=[State("review", own=False)])
        ann, item = user("ann", "take", "review"), an_item()
        item.take(by=ann)
        item.move("review", by=ann)
        with pytest.raises(
            TransitionNotAllowed,
            match="state 'review' needs another user: you moved the item into it, or were its assignee then",
        ):
            item.finish(by=ann)
        item.finish(by=user("rita", "review"))

    def test_a_reviewer_may_get_the_review(self, declare: Declare) -> None:
        """The rule is about the user who moved the item here, whoever has it now."""
        declare(states=[State("review", own=False)])
        ann, rita, item = user("ann", "take", "review"), user("rita", "take", "review"), an_item()
        item.take(by=ann)
        item.move("review", by=ann)
        item.assign(to=rita)
        with pytest.raises(TransitionNotAllowed, match="state 'review' needs another user"):
            item.finish(by=ann)
        item.finish(by=rita)

    def test_who_moves_the_item_of_another_user_cannot_review_it(self, declare: Declare) -> None:
        declare(states=[State("review", own=False)])
        boss, bob, item = user("boss", "assign", "review"), user("bob", "take", "review"), an_item()
        item.assign(to=bob, by=boss)
        item.move("review", by=boss)
        for one in (boss, bob):
            with pytest.raises(TransitionNotAllowed, match="state 'review' needs another user"):
                item.finish(by=one)

    def test_another_declared_state_is_no_way_around_a_required_one(self, declare: Declare) -> None:
        declare(states=["waiting", State("review", required=True)])
        ann, item = user("ann", "take", "review"), an_item()
        item.take(by=ann)
        item.move("waiting", by=ann)
        with pytest.raises(TransitionNotAllowed, match="finish is allowed in review"):
            item.finish(by=ann)

    def test_an_item_leaves_a_state_that_is_no_longer_declared(self, declare: Declare) -> None:
        declare()
        item = an_item()
        WorkItem.objects.filter(pk=item.pk).update(state="checking")
        again(item).assign(to=user("ann", "take"))
        assert again(item).state == "assigned"

    def test_a_required_state_cannot_be_skipped(self, declare: Declare) -> None:
        declare(states=[State("review", required=True)])
        ann, item = user("ann", "take", "review"), an_item()
        item.take(by=ann)
        with pytest.raises(TransitionNotAllowed, match="is assigned to ann: finish is allowed in review"):
            item.finish(by=ann)
        item.move("review", by=ann)
        item.finish(by=ann)

    def test_a_state_that_is_not_allowed_here(self, declare: Declare) -> None:
        declare(states=["review", State("printed", after=["review"])])
        item = an_item()
        item.assign(to=user("ann", "take"))
        with pytest.raises(
            TransitionNotAllowed, match="is assigned: it cannot move to 'printed'; allowed are review"
        ):
            item.move("printed")


class TestAutomate:
    def test_an_item_goes_back_to_the_handler(self, declare: Declare) -> None:
        declare(max_attempts=1)
        fails.append(RuntimeError("the bank is closed"))
        item = an_item(10)
        assert (item.state, item.error) == ("unassigned", "RuntimeError: the bank is closed")
        item.automate(by=user("boss", "assign"))
        drain()
        assert (again(item).state, again(item).is_automated, again(item).error) == ("finished", True, "")
        assert refunded() == [10]

    def test_it_needs_the_permission(self, refunds: type[Worklist]) -> None:
        with pytest.raises(TransitionNotAllowed, match="assign_refunds"):
            an_item().automate(by=user("ann", "take"))

    def test_a_required_review_is_not_avoided_by_the_handler(self, declare: Declare) -> None:
        declare(states=[State("review", required=True)])
        item = an_item()
        with pytest.raises(TransitionNotAllowed, match="the handler would skip the required review"):
            item.automate(by=user("boss", "assign", "review"))
        item.automate()
        drain()
        assert again(item).state == "finished"


class TestDue:
    def test_another_due_date_replaces_the_first(self, declare: Declare) -> None:
        declare(due=60, remind=10)
        item = an_item()
        item.set_due(at=timedelta(hours=1), by=user("boss", "assign"))
        drain(until=timedelta(minutes=30))
        assert steps_of(item) == ["created", "due_changed"]
        drain(until=timedelta(hours=2))
        assert steps_of(item) == ["created", "due_changed", "reminded", "overdue"]

    def test_without_a_due_date_nothing_is_overdue(self, declare: Declare) -> None:
        declare(due=60)
        item = an_item()
        item.set_due(at=None)
        drain(until=timedelta(hours=2))
        assert steps_of(item) == ["created", "due_changed"]

    def test_a_delayed_item_still_returns(self, refunds: type[Worklist]) -> None:
        item = an_item()
        item.delay(until=60)
        item.set_due(at=timedelta(days=1))
        drain(until=timedelta(hours=2))
        assert again(item).state == "unassigned"


class TestOther:
    def test_a_whole_item_cannot_be_saved(self, refunds: type[Worklist]) -> None:
        """It would undo the steps that others have taken meanwhile."""
        item = an_item()
        again(item).cancel()
        with pytest.raises(TypeError, match="a work item is changed by its methods"):
            item.save()
        item.save(update_fields=["title"])
        assert again(item).state == "cancelled"

    def test_an_item_that_a_user_has_delayed_is_not_for_others(self, refunds: type[Worklist]) -> None:
        ann, item = user("ann", "take"), an_item()
        item.take(by=ann)
        item.delay(until=60, by=ann)
        with pytest.raises(
            TransitionNotAllowed, match=r"it needs the permission 'mqueue_worklists.assign_refunds'"
        ):
            item.take(by=user("bob", "take"))
        item.take(by=ann)

    def test_an_item_is_not_assigned_to_a_user_who_cannot_take_it(self, refunds: type[Worklist]) -> None:
        with pytest.raises(ValueError, match="eve may not take items of refunds, or is not active"):
            an_item().assign(to=user("eve", "view"))

    def test_by_must_be_a_user(self, refunds: type[Worklist]) -> None:
        with pytest.raises(TypeError, match="by must be a user, not str"):
            an_item().take(by="ann")

    def test_cancel(self, refunds: type[Worklist]) -> None:
        item = an_item()
        item.cancel(by=user("boss", "assign"), comment="a duplicate")
        assert (again(item).state, again(item).is_open) == ("cancelled", False)
        assert refunded() == []

    def test_comments_do_not_conflict_with_steps(self, refunds: type[Worklist]) -> None:
        item = an_item()
        other = again(item)
        item.comment("hello", by=user("eve", "view"))
        other.take(by=user("ann", "take"))
        assert steps_of(item) == ["created", "commented", "taken"]

    def test_a_comment_has_the_state_of_the_item_now(self, refunds: type[Worklist]) -> None:
        item = an_item()
        newest().cancel()
        item.comment("too late")
        assert [(one.before, one.after) for one in item.history][-1] == ("cancelled", "cancelled")
        assert published("worklist.refunds")[-1].payload["after"] == "cancelled"

    def test_a_long_comment_is_refused(self, refunds: type[Worklist]) -> None:
        item = an_item()
        with pytest.raises(ValueError, match="comment may have at most 4,000 characters, not 4,001"):
            item.cancel(comment="x" * 4001)
        assert again(item).state == "unassigned"
        assert item.state == "unassigned"

    def test_the_items_of_a_user_who_is_deleted_by_a_proxy_are_unassigned(
        self, refunds: type[Worklist]
    ) -> None:
        item = an_item()
        item.take(by=user("ann", "take"))
        Clerk.objects.get(username="ann").delete()
        assert (newest().state, newest().assignee) == ("unassigned", None)

    def test_the_history_outlives_a_user(self, refunds: type[Worklist]) -> None:
        ann, item = user("ann", "take"), an_item()
        item.take(by=ann)
        ann.delete()
        step = item.history.get(step="taken")
        assert (step.actor, step.actor_name) == (None, "ann")
        assert (again(item).state, steps_of(item)[-1]) == ("unassigned", "unassigned")


class TestBulk:
    def test_the_others_continue_if_one_is_refused(self, refunds: type[Worklist]) -> None:
        ann, boss = user("ann", "take"), user("boss", "assign")
        items = [an_item() for _ in range(3)]
        items[1].cancel()
        refused = bulk(items, "assign", to=ann, by=boss)
        assert list(refused) == [items[1].pk]
        assert "is cancelled: assign is allowed in" in refused[items[1].pk]
        assert [again(item).state for item in items] == ["assigned", "cancelled", "assigned"]

    def test_work_that_fails_is_logged(
        self, refunds: type[Worklist], caplog: pytest.LogCaptureFixture
    ) -> None:
        items = [an_item(50), an_item(60)]
        bulk(items, "assign", to=user("ann", "take"))
        fails.append(RuntimeError("the bank is closed"))
        refused = bulk(items, "finish")
        assert refused == {items[0].pk: f"item {items[0].pk}: RuntimeError: the bank is closed"}
        assert "step of a work item failed" in caplog.text
        assert refunded() == [60]

    def test_an_unknown_verb(self, refunds: type[Worklist]) -> None:
        with pytest.raises(ValueError, match=r"verb must be one of take, assign, .*, not 'delete'"):
            bulk([an_item()], "delete")
