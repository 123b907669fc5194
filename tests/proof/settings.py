"""Settings of a run's processes: the settings of the tests' workers, with the run's handlers and jobs."""

from tests.proof.plan import MAX_ATTEMPTS
from tests.support.worker_settings import *  # noqa: F403

INSTALLED_APPS = ["django_mqueue", "tests.proof.worker_app"]
TASKS = {
    "default": {
        "BACKEND": "django_mqueue.tasks.MQueueBackend",
        "QUEUES": ["default"],
        "OPTIONS": {"max_attempts": MAX_ATTEMPTS, "backoff": [0.05, 0.1]},
    }
}
