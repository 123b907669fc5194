"""Guards of quarantined messages: a row that another transaction has locked delays no other group."""

from __future__ import annotations

from .mutation import Mutation, mutation

_LOCKED = "protocol/hostile/test_quarantine_with_locked_rows.py"
_ENDED = f"{_LOCKED}::test_a_locked_answer_to_a_suspect_stops_no_other_group"
_LONG = f"{_LOCKED}::test_a_suspect_that_runs_long_and_is_locked_stops_no_other_group"
_BY_HAND = f"{_LOCKED}::test_by_hand_a_locked_suspect_stops_no_poll_for_ever"
_WAITING = f"{_LOCKED}::test_locked_messages_of_one_group_keep_no_suspect_of_another_waiting"
_STOPPED = "no group of the process claims a message until the other transaction ends"

MUTATIONS: tuple[Mutation, ...] = (
    mutation(
        "a quarantined message stops running alone when its handler ends, even if its row is locked",
        _STOPPED,
        "protocol/claim_scheduler.py",
        "        delivery.status.alone = False\n",
        "",
        _ENDED,
    ),
    mutation(
        "a quarantined message runs alone for a limited time, even if its row is locked",
        _STOPPED,
        "protocol/claim_scheduler.py",
        "            self.let_others_run(alone)\n            return False\n",
        "            self.let_others_run(alone)\n"
        "            alone.status.alone = not alone.status.acknowledger.end_quarantine(alone)\n"
        "            return alone.status.alone\n",
        _LONG,
        _BY_HAND,
    ),
    mutation(
        "a worker repeats an update of a quarantined message that a lock prevented",
        "the row says forever that the message runs alone, so any death of the process counts as its failure",
        "protocol/claim_scheduler.py",
        "        now = time.monotonic()\n        self._note(now)\n",
        "        now = time.monotonic()\n",
        _LONG,
        _BY_HAND,
    ),
    mutation(
        "no message that was claimed ahead starts while a quarantined message runs alone",
        "a message that kills its worker also interrupts other messages",
        "workers/call_starter.py",
        "free = 0 if self._scheduler.update_quarantine() else self",
        "free = self",
        f"{_WAITING}[it rests]",
    ),
    mutation(
        "a message that a handler got when its worker died is quarantined",
        "a message that kills its worker is delivered together with others again and again",
        "protocol/fetching.py",
        "if not handed and one not in deliveries]",
        "if one not in deliveries]",
        "features/workers/test_quarantine_log.py"
        "::test_messages_of_a_dead_worker_are_one_line_with_their_number",
    ),
    mutation(
        "a takeover skips locked messages that the dead worker had claimed ahead",
        "the new owner waits for an unrelated transaction, and delivers nothing",
        "protocol/fetching.py",
        "free, _ = delivery_state.lock_in_flight(cursor, state.group, state.topic, some)",
        "free = set(some)",
        "protocol/guards/test_claimed_ahead.py::test_a_locked_one_holds_up_no_takeover",
    ),
    mutation(
        "messages that a group that backs off claimed ahead delay no quarantined message of another group",
        "a quarantined message waits until an unrelated transaction ends",
        "workers/call_starter.py",
        "self.pool.calls + self.sharing.startable",
        "self.pool.calls + self.sharing.waiting",
        f"{_WAITING}[it rests]",
    ),
    mutation(
        "handlers that have ended delay no quarantined message",
        "a quarantined message waits until an unrelated transaction ends",
        "workers/call_starter.py",
        "startable + overdue",
        "startable + len(self.completer.unsettled)",
        f"{_WAITING}[it rests]",
    ),
    mutation(
        "an overdue handler counts as running until it ends",
        "a message that kills its worker also interrupts this handler",
        "workers/call_starter.py",
        "startable + overdue",
        "startable",
        f"{_LOCKED}::test_a_suspect_waits_for_a_handler_that_has_run_too_long",
    ),
    mutation(
        "a worker stops waiting for a quarantined message when it has claimed it",
        "after the message has run alone for its time, the worker claims no other message",
        "protocol/claiming.py",
        "            if not partition.quarantined:\n                state.quarantined.pop(name, None)\n",
        "",
        _LONG,
    ),
    mutation(
        "in strict order, a quarantined message waits for other messages of its key",
        "two messages of a key are delivered at once",
        "protocol/claiming.py",
        "(state.options.strict or is_one_at_a_time(name)) and partition.in_flight",
        "False",
        "protocol/hostile/test_redelivery.py::"
        "test_strict_order_takes_what_a_subscriber_without_it_left_one_by_one",
    ),
    mutation(
        "quarantined messages of a paused group delay no other group",
        "no other group of the process claims a message until the group is resumed",
        "protocol/subscriber.py",
        "if not state.quarantined or state.paused or self.backing_off:",
        "if not state.quarantined or self.backing_off:",
        f"{_LOCKED}::test_suspects_of_a_paused_group_stop_no_other_group",
    ),
    mutation(
        "a worker leaves the failures of a group that backs off for later",
        "settling for other groups waits for the locked rows of this group",
        "workers/completer.py",
        "                or self._subscriber_of[outcome.delivery.status.acknowledger].backing_off\n",
        "",
        f"{_LOCKED}::test_many_answers_of_a_resting_group_keep_no_answer_of_another_waiting",
    ),
    mutation(
        "a worker with the option --drain waits for groups that back off",
        "it exits and reports no work while messages of such a group are open",
        "workers/runner.py",
        "work = work or subscriber.backing_off",
        "work = work or False",
        f"{_LOCKED}::test_drain_does_not_end_while_a_group_rests",
    ),
)
