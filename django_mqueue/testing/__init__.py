"""Helpers for the tests of projects: check what was published, and run handlers in the test's own process.

They work inside the transaction of a ``TestCase``, and in a ``TransactionTestCase``. ``draining`` runs handlers, and
calls the receivers of signals before it returns; ``asserting`` lists and checks messages and jobs.
It imports ``tasks``, ``workers``, ``stats``, ``service`` and lower layers.
"""

from .asserting import assert_enqueued, assert_published, make_message, perform_job, published
from .draining import drain, requests_answered

__all__ = [
    "assert_enqueued", "assert_published", "drain", "make_message", "perform_job", "published", "requests_answered",
]  # fmt: skip
