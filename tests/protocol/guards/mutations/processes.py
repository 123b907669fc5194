"""Guards of the supervisor and its child processes."""

from __future__ import annotations

from .mutation import Mutation, mutation

_CHILD, _SUPERVISOR = "workers/processes/child.py", "workers/processes/supervisor.py"
_SIGNALS, _TESTS = "features/processes/test_signals.py", "features/processes/test_supervisor.py"
_FIRST_SIGNAL = f"{_SIGNALS}::test_the_first_signal_finishes_and_acks_what_runs_and_exits_0"

MUTATIONS: tuple[Mutation, ...] = (
    mutation(
        "a child ignores SIGINT",
        "Ctrl-C ends the children in the middle of their handlers",
        _CHILD,
        "signal.signal(signal.SIGINT, lambda number, frame: None)",
        "signal.signal(signal.SIGINT, signal.SIG_DFL)",
        f"{_FIRST_SIGNAL}[Ctrl-C]",
    ),
    mutation(
        "a repeated SIGTERM does not end a child at once",
        "a service manager that sends SIGTERM to each process ends the handlers in the middle",
        _CHILD,
        "        asked.set()\n",
        "        if asked.is_set():\n            os._exit(1)\n        asked.set()\n",
        "features/processes/test_signals.py::test_a_child_that_gets_sigterm_twice_finishes_what_runs",
    ),
    mutation(
        "only the supervisor keeps open the pipe whose end tells that it has ended",
        "children of a killed supervisor run for ever",
        _SUPERVISOR,
        "        self._alive.close()\n",
        "",
        f"{_SIGNALS}::test_the_children_finish_what_runs_if_the_supervisor_is_killed",
    ),
    mutation(
        "no connection is open at a fork",
        "two processes use one connection to the server",
        _SUPERVISOR,
        "            connections.close_all()\n",
        "",
        f"{_TESTS}::test_no_connection_is_open_when_a_child_is_forked",
    ),
    mutation(
        "a replacement has the name of the dead child",
        "the messages of a dead child wait until its lease expires",
        _SUPERVISOR,
        "            name=slot.name,\n            max_messages",
        "            name=None,\n            max_messages",
        f"{_TESTS}::test_a_killed_child_is_replaced_and_its_leases_are_free_at_once",
    ),
    mutation(
        "the child that ends last decides whether the drain left messages",
        "runconsumer --drain reports messages as left that another child has handled",
        _SUPERVISOR,
        "self.left = report.left",
        "self.left = max(self.left, report.left)",
        f"{_TESTS}::test_drain_exits_with_0_if_another_child_did_what_was_left",
    ),
    mutation(
        "runconsumer --reload does not wait for a worker that has not begun",
        "after a SIGTERM at its very start, the command waits for a second one",
        "workers/processes/reload.py",
        "        if not first.acquire(blocking=False):\n            stop()\n            ended.wait()\n",
        "        stop()\n        ended.wait()\n",
        "features/processes/test_reload.py::test_sigterm_before_the_worker_begins_ends_the_command",
    ),
)
