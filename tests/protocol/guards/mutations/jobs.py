"""Guards of priorities and of jobs: who runs first, what is stored with a job, and when a job has failed."""

from __future__ import annotations

from .mutation import Mutation, mutation

_PRIORITIES = "features/workers/test_priorities.py"
_CONTRACT = "features/tasks/test_contract.py"
_RETRIES = "features/tasks/test_retries.py"
_UNIQUE = "features/tasks/test_unique.py"
_RECURRING = "features/tasks/test_recurring.py"

MUTATIONS: tuple[Mutation, ...] = (
    mutation(
        "partitions with a higher priority are claimed first",
        "an urgent message waits until the backlog is handled",
        "protocol/choosing.py",
        "        ready.sort(key=priority_of, reverse=True)\n",
        "",
        f"{_PRIORITIES}::test_the_highest_priority_comes_first",
    ),
    mutation(
        "a share of each claim is for the lowest priority",
        "messages with a low priority wait as long as others arrive",
        "protocol/choosing.py",
        "    if for_lowest:\n",
        "    if False:\n",
        f"{_PRIORITIES}::test_a_share_of_the_messages_is_claimed_from_the_lowest_priority",
    ),
    mutation(
        "the acknowledgement of a job stores its return value",
        "a job is successful, and its return value is lost",
        "protocol/acknowledging/acknowledger.py",
        "skipped=skipped, results=results)",
        "skipped=skipped)",
        f"{_CONTRACT}::test_the_life_of_a_job",
    ),
    mutation(
        "a job that has used up its attempts does not start again",
        "a job that kills its worker kills up to a thousand of them",
        "tasks/running.py",
        "    if delivery.status.failures >= options.max_attempts:\n",
        "    if delivery.status.failures > ATTEMPTS_MAX:\n",
        f"{_RETRIES}::test_a_job_that_kills_its_workers_fails_and_does_not_loop",
    ),
    mutation(
        "a task limits the attempts of its jobs below the limit of the queue",
        "a job is retried a thousand times",
        "workers/jobs.py",
        "wait is None or is_last",
        "wait is None",
        f"{_RETRIES}::test_between_attempts_a_job_is_ready",
    ),
    mutation(
        "a failed job is looked for among the messages that were redriven",
        "a job that was redriven and runs again is reported as failed",
        "tasks/results.py",
        "row = job_rows.newest_copy(using, GROUP, id.topic, str(id)) or row",
        "row = row",
        f"{_CONTRACT}::test_a_job_that_is_redriven_runs_again_with_its_id",
    ),
    mutation(
        "only a task is called",
        "a message names any function of the project, and the worker calls it",
        "tasks/results.py",
        "    if not isinstance(found, Task):\n",
        "    if False:\n",
        f"{_CONTRACT}::test_an_unknown_task_waits_for_a_worker_that_knows_it",
    ),
    mutation(
        "a firing has the same id in all workers",
        "each worker fires a recurring job for itself",
        "tasks/recurring.py",
        'self._id(f"{due:%Y%m%dT%H%M%SZ}")',
        "JobId.new(self.task.queue_name, self.task.priority)",
        f"{_RECURRING}::test_workers_enqueue_the_next_firing_once_when_they_start",
    ),
    mutation(
        "a firing enqueues the next one",
        "a recurring job runs once after each start of a worker",
        "tasks/recurring.py",
        "        self._enqueue(options.timetable.next_after(after), str(previous) if skips else message.id)\n",
        "",
        f"{_RECURRING}::test_a_firing_runs_and_the_next_one_is_enqueued",
    ),
    mutation(
        "a firing waits for the end of the previous one",
        "two firings of a job run at the same time",
        "tasks/recurring.py",
        "            raise Postpone(WAIT)\n",
        "            return True\n",
        f"{_RECURRING}::test_a_firing_waits_for_the_previous_one",
    ),
    mutation(
        "the firing after a skipped one looks at the job that still runs",
        "two firings of a job run at the same time",
        "tasks/recurring.py",
        "str(previous) if skips else message.id",
        "message.id",
        f"{_RECURRING}::test_a_firing_is_skipped_while_the_previous_one_is_unfinished",
    ),
    mutation(
        "a paused job does not fire",
        "a job runs that an operator has stopped",
        "tasks/recurring.py",
        "        if self.is_paused:\n",
        "        if False:\n",
        f"{_RECURRING}::test_pause_and_resume",
    ),
    mutation(
        "a firing that has begun is retried although its job is paused",
        "a failed firing ends as successful and is not retried",
        "tasks/recurring.py",
        "            return not is_first or self._skipped",
        "            return self._skipped",
        f"{_RECURRING}::test_a_firing_that_has_begun_is_retried_although_the_job_is_paused",
    ),
    mutation(
        "a retried firing enqueues none whose message may have been deleted",
        "a firing that has run and was deleted runs again",
        "tasks/recurring.py",
        "        if not is_first:\n",
        "        if False:\n",
        f"{_RECURRING}::test_a_retry_does_not_repeat_firings_that_were_deleted_since",
    ),
    mutation(
        "the search for the newest job of a key sees what was committed since the caller's snapshot",
        "a job is enqueued twice, or never ends its search for a number",
        "tasks/unique.py",
        "    with outside_snapshot(using) as now:\n        found",
        "    now = using\n    if True:\n        found",
        f"{_UNIQUE}::test_a_snapshot_does_not_hide_a_newer_job",
    ),
    mutation(
        "whether a job has ended is not read from the caller's snapshot",
        "a job is not enqueued, because one that has ended seems to run",
        "tasks/backend.py",
        "        with outside_snapshot(self.using) as now:\n            row",
        "        now = self.using\n        if True:\n            row",
        f"{_UNIQUE}::test_a_snapshot_does_not_hide_that_the_job_has_ended",
    ),
    mutation(
        "a job looks for one that replaces it before it runs",
        "each job runs, and the newest is only the last",
        "tasks/running.py",
        "    if _is_replaced(backend, options, delivery):\n",
        "    if False:\n",
        f"{_UNIQUE}::test_the_newest_of_those_that_wait_replaces_the_others",
    ),
)
