"""Guards of priorities and of jobs: who runs first, what is stored with a job, and when a job has failed."""

from __future__ import annotations

from .mutation import Mutation, mutation

_PRIORITIES = "features/workers/test_priorities.py"
_CONTRACT = "features/tasks/test_contract.py"
_RETRIES = "features/tasks/test_retries.py"

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
)
