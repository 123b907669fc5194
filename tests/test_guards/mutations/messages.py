"""Guards of what messages can do besides being delivered: effects in one commit, ways back, new beginnings."""

from __future__ import annotations

from .mutation import Mutation, mutation

_ATOMIC = "test_atomic/test_handlers.py"

MUTATIONS: tuple[Mutation, ...] = (
    mutation(
        "an atomic handler's ack is in its transaction",
        "a worker that dies between the two runs the handler again, and its effects are there twice",
        "service/atomically.py",
        "acked = answering.ack(deliveries, whole=True)",
        "acked = True",
        f"{_ATOMIC}::test_no_commit_of_its_own_for_the_ack",
    ),
    mutation(
        "an atomic handler's transaction is one from its beginning to its end",
        "after a deadlock that the handler keeps to itself, or a COMMIT of its own, half of it goes with the ack",
        "service/atomically.py",
        "with _still_there(), transaction.atomic(using=using):",
        "with _still_there():",
        f"{_ATOMIC}::test_a_deadlock_that_the_handler_keeps_to_itself",
    ),
    mutation(
        "an atomic handler writes to the queue's database alone",
        "what it writes elsewhere stays when the rest is rolled back, and is written again",
        "service/atomically.py",
        "if WRITING.match(str(sql)):",
        "if WRITING.match(str(sql)) and not sql:",
        f"{_ATOMIC}::test_a_write_to_another_database_is_refused_before_it_is_made",
    ),
    mutation(
        "what is redriven is locked first",
        "two who redrive at once send each letter back twice",
        "service/redrive.py",
        "sorted(garbage.lock_free(cursor, page))",
        "sorted(page)",
        "test_dead_letters/test_redrive.py::test_two_at_once_send_each_back_once",
    ),
    mutation(
        "redrive ends with the letters that were there",
        "a message that fails at once goes round and round, and redrive never ends",
        "service/redrive.py",
        "last = 0, log.newest(self.using, self.dead_topic)",
        "last = 0, 1 << 62",
        "test_dead_letters/test_redrive.py::test_what_comes_while_it_runs_is_left_for_another_time",
    ),
    mutation(
        "reset forgets what the group has done",
        "what is to be replayed counts as done, and does not come",
        "service/positions.py",
        "while state.delete_group(cursor, group, topic):",
        "while not state.NOW_MS:",
        "test_groups/test_positions.py::test_to_the_earliest",
    ),
    mutation(
        "reset asks who runs",
        "a group is moved under its running workers by mistake",
        "service/positions.py",
        "if running and not force:",
        "if running and force is None:",
        "test_groups/test_positions.py::test_refused_while_its_subscribers_run_and_nothing_is_changed",
    ),
    mutation(
        "a message for one group needs that group",
        "a mistyped group's messages are stored, and deleted before anybody was given them",
        "store/log.py",
        "target = _REGISTERED if self.group else",
        'target = _REGISTERED.replace("SELECT consumer_group", "SELECT COALESCE(MAX(consumer_group), 0)")'
        " if self.group else",
        "test_publish/test_targets.py::test_a_group_that_is_not_registered_is_an_error_that_names_it[True]",
    ),
)
