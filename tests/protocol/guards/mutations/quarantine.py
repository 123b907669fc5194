"""Guards of messages that run alone: a row that another transaction has locked holds up no other group."""

from __future__ import annotations

from .mutation import Edit, Mutation, mutation

_LOCKED = "protocol/hostile/test_alone_beside_locked.py"
_ENDED = f"{_LOCKED}::test_a_locked_answer_to_a_suspect_stops_no_other_group"
_LONG = f"{_LOCKED}::test_a_suspect_that_runs_long_and_is_locked_stops_no_other_group"
_BY_HAND = f"{_LOCKED}::test_by_hand_a_locked_suspect_stops_no_poll_for_ever"
_WAITING = f"{_LOCKED}::test_locked_messages_of_one_group_keep_no_suspect_of_another_waiting"
_STOPPED = "no group of the process claims anything until that transaction ends"

MUTATIONS: tuple[Mutation, ...] = (
    mutation(
        "a suspect whose handler has ended no longer runs alone, though its answer waits",
        _STOPPED,
        "protocol/dispatch.py",
        "        delivery.hold.alone = False\n",
        "",
        _ENDED,
    ),
    mutation(
        "a suspect runs alone for its time, whether or not its row can note the end of it",
        _STOPPED,
        "protocol/dispatch.py",
        "            self.let_others_run(alone)\n            return False\n",
        "            self.let_others_run(alone)\n"
        "            alone.hold.alone = not alone.hold.answering.crowd_again(alone)\n"
        "            return alone.hold.alone\n",
        _LONG,
        _BY_HAND,
    ),
    mutation(
        "what could not be noted in a locked row is noted later",
        "the row says for ever that the message runs alone: a death of the process counts as its failure",
        "protocol/dispatch.py",
        "        now = time.monotonic()\n        self._note(now)\n",
        "        now = time.monotonic()\n",
        _LONG,
        _BY_HAND,
    ),
    mutation(
        "nothing that was claimed ahead starts beside a message that runs alone",
        "a message that kills its worker takes others with it",
        "workers/runner.py",
        "free = 0 if self._dispatch.alone() else self",
        "free = self",
        f"{_WAITING}[it rests]",
    ),
    mutation(
        "what a group that rests has claimed ahead keeps no suspect of another group waiting",
        "a message in quarantine waits until a stranger's transaction ends",
        "workers/runner.py",
        "self._sharing.startable",
        "self._sharing.waiting",
        f"{_WAITING}[it rests]",
    ),
    mutation(
        "handlers that have ended keep no suspect waiting",
        "a message in quarantine waits until a stranger's transaction ends",
        "workers/runner.py",
        "startable + overdue",
        "startable + len(self._answers.finished)",
        f"{_WAITING}[it rests]",
    ),
    mutation(
        "a handler that has run too long counts until it ends",
        "a message that kills its worker takes that handler with it",
        "workers/runner.py",
        "startable + overdue",
        "startable",
        f"{_LOCKED}::test_a_suspect_waits_for_a_handler_that_has_run_too_long",
    ),
    mutation(
        "a suspect that was claimed is no longer waited for",
        "once it has run alone for its time, nothing else is claimed",
        "protocol/claiming.py",
        "            if not partition.suspects:\n                context.suspected.pop(name, None)\n",
        "",
        _LONG,
    ),
    mutation(
        "in strict order, a suspect waits for another one of its key",
        "two messages of a key are delivered at once",
        "protocol/claiming.py",
        "context.options.strict and partition.in_flight",
        "False",
        "protocol/hostile/test_redelivery.py::"
        "test_strict_order_takes_what_a_subscriber_without_it_left_one_by_one",
    ),
    mutation(
        "suspects of a paused group are not waited for",
        "no other group of the process claims until it is resumed",
        "protocol/engine.py",
        "(self.resting or self.context.paused)",
        "self.resting",
        f"{_LOCKED}::test_suspects_of_a_paused_group_stop_no_other_group",
    ),
    Mutation(
        "answers of a group that rests are left out of what is sent together",
        "answers of other groups wait as long",
        (
            Edit(
                "workers/completer.py",
                'outcome.verdict.verb == "ack" or self._engine_of[outcome.delivery.hold.answering].resting:',
                'outcome.verdict.verb == "ack":',
            ),
        ),
        (f"{_LOCKED}::test_many_answers_of_a_resting_group_keep_no_answer_of_another_waiting",),
    ),
    mutation(
        "a drained worker waits for a group that rests",
        "it ends while messages of that group are open, and says that nothing is left",
        "workers/runner.py",
        "work = work or engine.resting",
        "work = work or False",
        f"{_LOCKED}::test_drain_does_not_end_while_a_group_rests",
    ),
)
