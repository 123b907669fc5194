"""Load the example project's tables and commands, for its parts that need Spark."""

from tests.docs_and_example.example.conftest import _flights_tables, example, flights

__all__ = ["_flights_tables", "example", "flights"]
