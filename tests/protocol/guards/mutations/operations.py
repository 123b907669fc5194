"""Guards of the admin's long operations: each step counts once, and the log of actions has the whole count."""

from __future__ import annotations

from .mutation import mutation

_BACKGROUND = "admin/dead_letters/background.py"
_TESTS = "admin/test_dead_letters_background.py"

MUTATIONS = (
    mutation(
        "a step of a long redrive or purge commits with its acknowledgement and the next step",
        "a worker dies after its redrives, and the log of actions leaves them out",
        "consumers.py",
        "        atomic=True,\n",
        "        atomic=False,\n",
        f"{_TESTS}::test_a_step_that_fails_is_done_again",
    ),
    mutation(
        "a step accepts the log entry as it was before the previous step",
        "a worker dies before it writes the log, and the operation ends as if a user had stopped it",
        _BACKGROUND,
        "entry.change_message not in work.logs:",
        "entry.change_message != work.logs[-1]:",
        f"{_TESTS}::test_a_worker_that_dies_before_it_writes_the_log_is_no_stop",
    ),
    mutation(
        "the last step of a long operation also stores a message",
        "a worker dies after the last step, and the log of actions says that the operation is under way",
        _BACKGROUND,
        "    bulk_work.send(using, delivery.key",
        "    if run.position is not None:\n        bulk_work.send(using, delivery.key",
        f"{_TESTS}::test_each_worker_dies_before_it_writes_the_log",
    ),
    mutation(
        "the message after a stopped step writes the count of the step",
        "a user stops a purge and the worker dies: the log of actions reports fewer messages than were deleted",
        _BACKGROUND,
        "stop=_stopped(work), ",
        "",
        f"{_TESTS}::test_a_worker_dies_during_a_stop",
    ),
    mutation(
        "a worker that writes the log late overwrites no newer text",
        "a worker stalls after its step, and the operation ends as if a user had stopped it",
        _BACKGROUND,
        "        entries.filter(change_message=work.stop).update(",
        "        entries.update(",
        f"{_TESTS}::test_a_worker_writes_the_log_late",
    ),
    mutation(
        "each step checks the permission of the user who started the operation",
        "a user is dismissed, and a worker continues to delete dead letters for this user",
        _BACKGROUND,
        "    if not all(entry.user.has_perm(",
        "    if False and not all(entry.user.has_perm(",
        f"{_TESTS}::test_the_user_loses_the_permission",
    ),
)
