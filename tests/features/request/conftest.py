"""Short leases and short poll intervals."""

from tests.support.fixtures import fast

__all__ = ["fast"]
