"""Short leases and quick looks."""

from tests.support.fixtures import fast

__all__ = ["fast"]
