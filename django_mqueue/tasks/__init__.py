"""The backend of Django's Tasks: each job is a message of the topic ``tasks.<queue>``, for the group ``tasks``.

``backend`` enqueues jobs and finds their results, ``running`` runs them in a worker, ``queues`` registers a handler for
each queue, and ``options`` holds the settings of a backend and of a task. This package imports all lower layers.
"""

from .backend import MQueueBackend
from .context import JobStopped, Progress
from .groups import JobGroup, enqueue_group
from .limit import Limit
from .options import JobExpired, job_options
from .queues import recurring_jobs
from .recurring import RecurringJob
from .results import UnknownTask, progress_of
from .running import JobContext
from .unique import JobExists, Unique
from .waiting import await_result, wait_for_result

__all__ = [
    "JobContext", "JobExists", "JobExpired", "JobGroup", "JobStopped", "Limit", "MQueueBackend", "Progress",
    "RecurringJob", "Unique", "UnknownTask", "await_result", "enqueue_group", "job_options", "progress_of",
    "recurring_jobs", "wait_for_result",
]  # fmt: skip
