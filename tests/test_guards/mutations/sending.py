"""Guards of what Spark sends: rows that come again in other tasks, and connections that must be encrypted."""

from __future__ import annotations

from .mutation import Mutation, mutation

_IDS = "test_spark/test_ids.py"
_CONNECTING = "test_spark/test_connecting.py"

MUTATIONS: tuple[Mutation, ...] = (
    mutation(
        "equal rows of several tasks end a write with a name",
        "of those that have no ids one is stored, and nobody is told",
        "spark/sink.py",
        "    if pc.count_distinct(array).as_py() < len(array):\n",
        "    if pc.count_distinct(array).as_py() < 0:\n",
        f"{_IDS}::test_equal_rows_of_several_tasks_are_refused_and_what_is_missing_can_be_stored",
    ),
    mutation(
        "a stream whose rows may come in other tasks needs ids",
        "a batch that comes again when fewer executors are there is stored a second time",
        "spark/rows.py",
        '        if self._adaptive and any(id is None for id in columns.get("id", nothing)):\n',
        "        if self._adaptive and not columns:\n",
        f"{_IDS}::test_a_stream_that_could_be_cut_into_other_tasks_needs_ids",
    ),
    mutation(
        "a connection that must be encrypted is",
        "MariaDB's client library goes on in the clear where the server, or who stands before it, offers nothing else",
        "store/detached.py",
        "        if must_be_encrypted(conn_params) and not raw.client_flag",
        "        if not must_be_encrypted(conn_params) and not raw.client_flag",
        f"{_CONNECTING}::test_what_must_be_encrypted_is_not_sent_in_the_clear[REQUIRED]",
    ),
)
