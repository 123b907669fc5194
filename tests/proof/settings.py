"""Settings of a run's processes: the settings of the tests' workers, with the run's handlers."""

from tests.support.worker_settings import *  # noqa: F403

INSTALLED_APPS = ["django_mqueue", "tests.proof.plant"]
