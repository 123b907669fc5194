"""Guards of rows that Spark publishes: tasks may send a row again, and some connections must be encrypted."""

from __future__ import annotations

from .mutation import Mutation, mutation

_IDS = "spark/test_ids.py"
_SIGNS = "spark/test_unstable_content.py"
_TLS = "spark/test_encryption.py"

MUTATIONS: tuple[Mutation, ...] = (
    mutation(
        "a write with a writeId fails if several tasks have equal rows",
        "of equal rows without ids, only one is stored, without an error",
        "spark/writer/sink.py",
        "    if pc.count_distinct(array).as_py() < len(array):\n",
        "    if pc.count_distinct(array).as_py() < 0:\n",
        f"{_IDS}::test_equal_rows_of_several_tasks_are_refused_and_what_is_missing_can_be_stored",
    ),
    mutation(
        "a stream whose rows may move to other tasks needs ids",
        "a batch that runs again with fewer executors is stored a second time",
        "spark/writer/rows.py",
        '        if self._adaptive and any(id is None for id in columns.get("id", nulls)):\n',
        "        if self._adaptive and not columns:\n",
        f"{_IDS}::test_a_stream_that_could_be_cut_into_other_tasks_needs_ids",
    ),
    mutation(
        "a connection that must be encrypted verifies its server before login",
        "MariaDB's client library sends the password to a false server or a server without TLS",
        "spark/sql/detached.py",
        "return encryption.enforced(super().get_connection_params())",
        "return dict(super().get_connection_params())",
        f"{_TLS}::test_a_false_server_is_sent_no_password[parameters0-without]",
    ),
    mutation(
        "the SQL mode of Spark's connections is strict",
        "messages for a group that is unsubscribed meanwhile go to all groups, if the server's mode is not strict",
        "spark/sql/detached.py",
        '"sql_mode": "STRICT_TRANS_TABLES",',
        "",
        "spark/test_connecting.py::test_the_sql_mode_is_strict_on_any_server",
    ),
    mutation(
        "the environment can forbid options that name servers, files and functions",
        "a user who may only read a topic can send any file or the password to a server of their own",
        "spark/connecting.py",
        "    if options_refused() and not",
        "    if options_refused() is None and not",
        "spark/test_trust.py::test_options_are_refused_where_the_environment_says_so",
    ),
    mutation(
        "a write with a writeId creates no ids from numbers whose last digits may differ",
        "a sum of floats in another order is stored as a second message, without an error",
        "spark/writer/rows.py",
        "                _check_stable(key=key, kind=kind, headers=headers, payload=payload)\n",
        "                pass\n",
        "spark/test_rows.py"
        "::test_a_write_with_a_name_makes_no_ids_of_numbers_whose_last_digits_may_differ[row0]",
    ),
    mutation(
        "a write with a writeId warns of content that changes in each run",
        "a repeated write stores rows with random ids or the current time twice, without a warning",
        "spark/writer/sink.py",
        "    if found:\n",
        "    if not tasks:\n",
        f"{_SIGNS}::test_a_random_uuid_in_each_row_is_warned_of",
    ),
    mutation(
        "the check for unstable content also reads JSON in bytes",
        "a sum of floats in binary JSON is stored as a second message, without an error",
        "spark/writer/unstable.py",
        "isinstance(value, str | bytes)",
        "isinstance(value, str)",
        f"{_SIGNS}::test_bytes_that_are_json_are_looked_into",
    ),
)
