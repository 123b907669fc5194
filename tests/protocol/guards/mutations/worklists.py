"""Guards of worklists: one winner for each step, and work that is done once."""

from __future__ import annotations

from .mutation import Mutation, mutation

_STEPS = "features/worklists/test_steps.py"
_RACES = "features/worklists/test_races.py"

MUTATIONS: tuple[Mutation, ...] = (
    mutation(
        "a step changes an item only if no other step has changed it",
        "two people have the same item",
        "worklists/steps.py",
        "filter(pk=item.pk, version=item.version)",
        "filter(pk=item.pk)",
        f"{_RACES}::test_two_take_the_same_item[names0]",
    ),
    mutation(
        "an item and the acknowledgement of its message are one commit",
        "an item without history exists, or a message makes two items",
        "worklists/declaring.py",
        "options.start, atomic=True,\n",
        "options.start, atomic=False,\n",
        "features/worklists/test_intake.py::test_a_failure_after_the_item_was_stored_leaves_no_item",
    ),
    mutation(
        "finish changes the item before it works",
        "of two who finish an item, both do its work",
        "worklists/steps.py",
        "            _compare_and_set(item, **values)\n",
        "            first() if first else None\n            _compare_and_set(item, **values)\n",
        f"{_RACES}::test_two_finish_the_same_item",
    ),
    mutation(
        "the work that failed is rolled back before people get the item",
        "the item is given to people, and half of its work is done",
        "worklists/steps.py",
        "        with transaction.atomic(using=item.using):\n            _compare_and_set",
        "        if True:\n            _compare_and_set",
        "features/worklists/test_automation.py::test_after_the_last_attempt_people_get_the_item",
    ),
    mutation(
        "an item returns when its newest delay has ended",
        "an item that was delayed again returns at the first date",
        "worklists/automation.py",
        "    if delivery.id != steps.timer_id(item, delivery.kind):\n        return\n",
        "",
        f"{_STEPS}::TestDelay::test_a_delay_that_was_replaced_has_no_effect",
    ),
    mutation(
        "the handler leaves an item that a person has taken from it",
        "a refund is paid by the handler and by a person",
        "worklists/automation.py",
        "    if delivery.id != steps.timer_id(item, delivery.kind):\n        return\n"
        "    if item.state != STATE_OF.get(delivery.kind, item.state):\n        return\n",
        "",
        "features/worklists/test_automation.py::test_the_handler_leaves_an_item_that_a_person_took_from_it",
    ),
    mutation(
        "the handler finishes and returns items only in the state in which it was asked to",
        "a user who may publish finishes an item without its review",
        "worklists/automation.py",
        "    if item.state != STATE_OF.get(delivery.kind, item.state):\n        return\n",
        "",
        "features/worklists/test_automation.py::test_a_message_that_a_user_publishes_does_not_end_a_review[work]",
        "features/worklists/test_automation.py::test_a_message_that_a_user_publishes_does_not_end_a_review[return]",
    ),
    mutation(
        "an item escalates once for each due date",
        "after a reset of the worklist's topic, overdue items escalate a second time",
        "worklists/automation.py",
        "    if list(found)[-1:] == [step]:\n        return False\n",
        "",
        "features/worklists/test_due.py::test_an_item_escalates_once_for_each_due_date[repeat0]",
        "features/worklists/test_due.py::test_an_item_escalates_once_for_each_due_date[repeat1]",
    ),
    mutation(
        "an item is not overdue before its due date",
        "an operator who delivers the message of a due date now makes the item overdue",
        "worklists/automation.py",
        "now_ms(item.using)) > 0:",
        "now_ms(item.using)) > 1 << 62:",
        "features/worklists/test_due.py::test_deliver_now_makes_no_item_overdue_before_its_time[due0]",
        "features/worklists/test_due.py::test_deliver_now_makes_no_item_overdue_before_its_time[due1]",
    ),
    mutation(
        "an escalation that kills its worker ends after as many attempts as one that fails",
        "one overdue item kills a thousand workers",
        "worklists/automation.py",
        "    elif delivery.status.failures >= TIMER_LIMITS.max_attempts:\n        raise Exhausted(WORKER_DIED)\n",
        "",
        "features/worklists/test_due.py"
        "::test_an_escalation_that_has_killed_its_worker_each_time_is_a_dead_letter",
    ),
    mutation(
        "a comment has the state of the item when it is written",
        "an item that has ended seems open again to those who read its steps",
        "worklists/models.py",
        '            steps.record(current, "commented", by, text, current.state)',
        '            steps.record(self, "commented", by, text, self.state)',
        f"{_STEPS}::TestOther::test_a_comment_has_the_state_of_the_item_now",
    ),
)
