"""The faults of a run. Each fault is a function of the scene, called at a random moment.

The function acts. It returns the seconds until the fault ends and a function that ends it, or None.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import MySQLdb

from tests.proof.plan import GROUPS
from tests.proof.scene import Scene

Later = tuple[float, Callable[[], None]]
FaultOf = Callable[[Scene], Later | None]

HOUR = 3600.0


def kill_a_worker(scene: Scene) -> None:
    """Send SIGKILL at any moment of its work."""
    if members := scene.crew.of("worker", "hand"):
        scene.crew.kill(scene.dice.choice(members))


def kill_a_publisher(scene: Scene) -> None:
    if members := scene.crew.of("publisher"):
        scene.crew.kill(scene.dice.choice(members))


def kill_all_workers(scene: Scene) -> None:
    """Kill all workers at once, as when a node dies."""
    scene.crew.kill(*scene.crew.of("worker", "hand"))


def stop_a_worker(scene: Scene) -> Later | None:
    """Send SIGSTOP for less than the lease, or for longer, so that the worker is fenced when it continues."""
    return _stop(scene, "worker", "hand", seconds=scene.dice.choice([0.3, 0.7, 1.3, 2.0]) * scene.lease)


def stop_a_publisher(scene: Scene) -> Later | None:
    """Send SIGSTOP, perhaps during a transaction that holds a slot of the gate."""
    return _stop(scene, "publisher", seconds=scene.dice.random() * 1.5 * scene.lease)


def _stop(scene: Scene, *kinds: str, seconds: float) -> Later | None:
    members = scene.crew.of(*kinds)  # type: ignore[arg-type]
    if len(members) < 2:
        return None
    member = scene.dice.choice(members)
    scene.crew.stop(member)
    return seconds, lambda: scene.crew.resume(member)


def a_worker_leaves(scene: Scene) -> Later | None:
    """Send SIGTERM. Another worker takes the post some time later."""
    members = scene.crew.of("worker", "hand")
    if len(members) < 3:
        return None
    member = scene.dice.choice(members)
    scene.crew.leave(member)
    return scene.dice.random() * 2 * scene.lease, lambda: _join(scene, member.kind, member.post)


def _join(scene: Scene, kind: str, post: str) -> None:
    scene.crew.join(kind, post)  # type: ignore[arg-type]


def a_worker_joins(scene: Scene) -> Later | None:
    """Start an extra worker, with correct clocks or clocks that are an hour wrong. It leaves later."""
    if len(scene.crew.members) > 12:
        return None
    kind = scene.dice.choice(["worker", "hand"])
    clock = scene.dice.choice([0.0, HOUR, -HOUR])
    member = scene.crew.join(kind, f"guest-{kind}-{scene.dice.randrange(1000)}", clock=clock)  # type: ignore[arg-type]
    return scene.lease * 2, lambda: scene.crew.leave(member)


def a_clock_is_wrong(scene: Scene) -> None:
    """Kill a worker. The clocks of its successor are a day wrong."""
    if members := scene.crew.of("worker", "hand"):
        scene.crew.kill(scene.dice.choice(members), clock=scene.dice.choice([-24, 24]) * HOUR)
        scene.note("clock wrong", scene.crew.members[-1].name)


def kill_the_server(scene: Scene) -> None:
    """Send SIGKILL, and start the server again."""
    _restart(scene, signal.SIGKILL)


def restart_the_server(scene: Scene) -> None:
    _restart(scene, signal.SIGTERM)


def _restart(scene: Scene, number: signal.Signals) -> None:
    if scene.server is None:
        return
    scene.note("server down", number.name)
    if number == signal.SIGKILL:
        scene.server.kill()
    else:
        scene.server.stop()
    threading.Event().wait(scene.dice.random() * 2)
    scene.server.start()
    scene.note("server up")


def kill_connections(scene: Scene) -> None:
    """Run ``KILL`` on some connections, at any moment of their work."""
    with suppress(MySQLdb.Error):
        own = scene.parameters["database"]
        ids = [int(row[0]) for row in scene.query("SHOW PROCESSLIST") if row[3] == own]
        for connection in scene.dice.sample(ids, min(len(ids), scene.dice.randrange(1, 6))):
            scene.note("disconnected", str(connection))
            with suppress(MySQLdb.Error):
                scene.query(f"KILL {connection:d}")


def steal_leases(scene: Scene) -> None:
    """Let some leases expire while their holders are healthy. Other workers take the partitions."""
    rows = list[tuple[Any, ...]]()
    with suppress(MySQLdb.Error):
        rows = scene.query(
            "SELECT id, consumer_group, topic, partition_key FROM queue_partition_leases WHERE holder <> ''"
        )
    for id, group, topic, partition in scene.dice.sample(rows, min(len(rows), 8)):
        scene.note("stolen", f"{group} {topic} {partition}")
        with suppress(MySQLdb.Error):  # Locked by a stopped process, for example.
            scene.query(f"UPDATE queue_partition_leases SET lease_renewed_at = 0 WHERE id = {id:d}")


_LOCKING = (
    "SELECT id FROM queue_partition_leases WHERE consumer_group = %s AND topic = %s"
    " ORDER BY id DESC LIMIT 50 FOR UPDATE",
    "SELECT id FROM queue_offsets WHERE consumer_group = %s AND topic = %s ORDER BY id DESC LIMIT 50 FOR UPDATE",
    "SELECT delivery_token FROM queue_delivery_state WHERE consumer_group = %s AND topic = %s"
    " ORDER BY message_offset DESC LIMIT 200 FOR UPDATE",
    "SELECT `offset` FROM queue_messages WHERE consumer_group IN ('', %s) AND topic = %s"
    " ORDER BY `offset` DESC LIMIT 200 FOR UPDATE",
)


def lock_rows(scene: Scene) -> None:
    """Lock rows of all tables in the wrong order, from an outside connection, for up to two seconds.

    Workers wait for these locks, exceed their lock wait timeout, or meet a deadlock.
    """
    group, statements = scene.dice.choice(GROUPS), list(_LOCKING)
    scene.dice.shuffle(statements)
    seconds = scene.dice.random() * min(scene.lease / 3, 2.0)
    scene.note("rows locked", group.name)

    def lock() -> None:
        with suppress(MySQLdb.Error):
            connection = scene.connect()
            connection.autocommit(False)
            try:
                cursor = connection.cursor()
                for sql in statements:
                    cursor.execute(sql, (group.name, group.topic))
                    cursor.fetchall()
                    threading.Event().wait(seconds / len(statements))
                connection.rollback()
            finally:
                connection.close()

    threading.Thread(target=lock, daemon=True).start()


def freeze_writes(scene: Scene) -> None:
    """Block all commits for up to 1.5 seconds, as a backup does."""
    seconds = scene.dice.random() * min(scene.lease / 4, 1.5)
    scene.note("frozen")

    def freeze() -> None:
        with suppress(MySQLdb.Error):
            connection = scene.connect()
            try:
                cursor = connection.cursor()
                cursor.execute("SET SESSION lock_wait_timeout = 2")
                cursor.execute("FLUSH TABLES WITH READ LOCK")
                threading.Event().wait(seconds)
                cursor.execute("UNLOCK TABLES")
            finally:
                connection.close()

    threading.Thread(target=freeze, daemon=True).start()


def fill_the_disk(scene: Scene) -> None:
    """Fill the server's disk for up to two seconds. The server may refuse statements, or die."""
    if scene.disk is None:
        return
    scene.note("server down", "disk full")
    scene.disk.fill()
    threading.Event().wait(scene.dice.random() * 2)
    scene.disk.free()
    scene.note("server up")


FAULTS: dict[FaultOf, float] = {
    kill_a_worker: 30,
    kill_a_publisher: 8,
    kill_all_workers: 3,
    stop_a_worker: 10,
    stop_a_publisher: 4,
    a_worker_leaves: 6,
    a_worker_joins: 5,
    a_clock_is_wrong: 3,
    kill_the_server: 3,
    restart_the_server: 2,
    kill_connections: 8,
    steal_leases: 8,
    lock_rows: 8,
    freeze_writes: 3,
    fill_the_disk: 2,
}
"""All faults, with their relative frequencies. The sum is about a hundred."""


def possible(scene: Scene) -> dict[FaultOf, float]:
    """Return the faults that are possible in this scene."""
    impossible: set[FaultOf] = set()
    if scene.server is None:
        impossible |= {kill_the_server, restart_the_server}
    if scene.disk is None:
        impossible.add(fill_the_disk)
    return {fault: share for fault, share in FAULTS.items() if fault not in impossible}
