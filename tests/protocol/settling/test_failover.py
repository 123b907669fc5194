"""The primary server is killed, and a replica that is behind takes its place. Two real servers, and real workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.db import connections
from pytest_django import DjangoDbBlocker

from tests.databases import databases
from tests.own_server import own_server_of_kind
from tests.servers import kind_of_run
from tests.support.backup import apply_binary_log, dump, position_now, restore
from tests.support.processes import Workers, wait_until
from tests.support.stream import Stream
from tests.support.transactions import Background

from .restored import (
    CHOSEN,
    GROUPS,
    KEYS,
    assert_all_was_handled,
    assert_effects_and_acks_agree,
    at_work,
    ids,
    publish_again,
    settled_ids,
)


@contextmanager
def alias_of(socket: Path, alias: str) -> Iterator[str]:
    """Add a database that is reached by this socket for the block, and yield the URL for processes."""
    url = f"mysql://root@localhost/mqueue?unix_socket={socket}"
    connections.settings[alias] = connections.configure_settings(databases(url))["default"]
    try:
        yield url
    finally:
        connections[alias].close()
        del connections[alias]
        del connections.settings[alias]


@pytest.mark.timeout(600)
@pytest.mark.long
def test_a_failover_to_a_server_that_is_behind(tmp_path: Path, django_db_blocker: DjangoDbBlocker) -> None:
    """The replica is a restored backup with a part of the binary log. The primary is killed.

    The address then leads to the replica, and the workers that run continue with it. What was lost is published again.
    """
    kind, link, file = kind_of_run(), tmp_path / "address", tmp_path / "backup.sql"
    log = ["--log-bin=binlog", "--server-id=1", "--binlog-format=ROW"]
    with (
        django_db_blocker.unblock(),
        own_server_of_kind(kind, "primary", log) as primary,
        own_server_of_kind(kind, "replica", is_migrated=False) as replica,
        alias_of(link, "address") as url,
    ):
        link.symlink_to(primary.server.place.socket)
        stream = Stream(GROUPS, KEYS, using="address")
        with Workers(using="address") as workers:
            both = [workers.start(*CHOSEN, "--threads", "2", "--name", f"w{n}", url=url) for n in range(2)]
            with Background(stream.run, using="address"):
                try:
                    wait_until(lambda: at_work(stream, 20), "they are at work")
                    dump(file, "primary", notes_position=True)
                    wait_until(lambda: at_work(stream, 40), "more is done")
                    reached = position_now("primary")
                    wait_until(lambda: at_work(stream, 60), "the rest is lost")
                finally:
                    stream.stopping.set()
            wait_until(lambda: stream.settled() == stream.published, "all is done")
            connections["address"].close()
            primary.kill()

            restore(file, "replica")
            apply_binary_log(file, primary.server.place.data, reached, "replica")
            assert 120 <= sum(len(settled_ids(topic, "replica")) for topic in GROUPS) < stream.published
            assert len(ids("orders", "replica")) < stream.numbers * len(KEYS)
            assert_effects_and_acks_agree("replica")  # No worker changes it yet.

            link.unlink()
            link.symlink_to(replica.server.place.socket)
            publish_again(stream)
            stream.publish(stream.numbers)
            stream.numbers += 1
            wait_until(lambda: stream.settled() == stream.published, "all is done again")
            assert all(worker.running for worker in both), "they need no restart"
            assert [worker.stop() for worker in both] == [0, 0]
            assert all("the database is back" in worker.output() for worker in both)
        assert_all_was_handled(stream)
