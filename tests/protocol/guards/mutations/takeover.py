"""Guards of the takeover from dead workers: which members are dead, and for whom."""

from __future__ import annotations

from .mutation import Mutation, mutation

_DEAD = "protocol/takeover/test_dead_members.py"
_SESSIONS = "protocol/takeover/test_sessions.py"

MUTATIONS: tuple[Mutation, ...] = (
    mutation(
        "a worker that has lost its connection has time to reconnect",
        "a broken connection costs a worker its share, and its messages in flight are delivered again",
        "protocol/takeover.py",
        "due = max(interval + RECONNECT - member.since_heartbeat_ms / 1000, is_new_for)",
        "due = is_new_for",
        f"{_DEAD}::test_a_worker_that_reconnects_in_time_loses_nothing",
    ),
    mutation(
        "a worker looks again as soon as a member may be dead",
        "a dead worker is found up to a DISCOVERY_INTERVAL later",
        "protocol/membership.py",
        "self._beat_at = time.monotonic() + min(self.interval, next_check)",
        "self._beat_at = time.monotonic() + max(self.interval, min(next_check, 0))",
        f"{_DEAD}::test_others_look_again_when_the_heartbeat_is_old_enough",
    ),
    mutation(
        "a worker names its session lock when it starts",
        "others wait for the lease of a worker that dies before its first heartbeat",
        "store/heartbeats.py",
        "session_lock = {lock}{_ROW}",
        "session_lock = IF({lock} = '', '', ''){_ROW}",
        f"{_DEAD}::test_a_worker_that_dies_before_its_first_discovery_is_dead_like_any_other",
    ),
    mutation(
        "a member that may be dead takes no new partition",
        "a new partition waits for three discoveries",
        "protocol/takeover.py",
        "            if due == math.inf or is_new_for > 0:\n",
        "            if due:\n",
        f"{_DEAD}::test_a_new_partition_does_not_wait_for_a_worker_that_may_be_dead",
    ),
    mutation(
        "a worker that has just connected expects the others to take new partitions",
        "after an outage, every worker takes all new partitions",
        "protocol/takeover.py",
        "            if due == math.inf or is_new_for > 0:\n",
        "            if due == math.inf:\n",
        f"{_DEAD}::test_a_new_partition_does_not_wait_for_a_worker_that_may_be_dead",
    ),
    mutation(
        "a worker that has just connected looks again when it can judge others",
        "with a long DISCOVERY_INTERVAL, a new partition waits for a dead worker",
        "protocol/takeover.py",
        "is_new_for if due < math.inf and is_new_for > 0 else due",
        "due",
        f"{_DEAD}::test_a_worker_that_has_just_connected_looks_again_soon",
    ),
    mutation(
        "a worker that has just connected judges no other",
        "after an outage, the first worker to return takes the leases of all others",
        "protocol/takeover.py",
        "due = max(interval + RECONNECT - member.since_heartbeat_ms / 1000, is_new_for)",
        "due = interval + RECONNECT - member.since_heartbeat_ms / 1000",
        f"{_DEAD}::test_a_worker_that_has_just_connected_judges_nobody",
    ),
    mutation(
        "the transaction of a takeover checks the session lock again",
        "a worker that reconnects at this moment loses its leases",
        "store/heartbeats.py",
        " AND {session_lock.is_free(cursor.db.alias)} FOR UPDATE SKIP LOCKED",
        " FOR UPDATE SKIP LOCKED",
        f"{_DEAD}::test_a_worker_that_comes_back_between_the_look_and_the_decision",
    ),
    mutation(
        "the transaction of a takeover checks the heartbeat again",
        "a worker that came back and lost its connection again has no time to reconnect",
        "store/heartbeats.py",
        'f" AND heartbeat_at <= {NOW_MS} - %s AND {session_lock',
        'f" AND %s <> 0 AND {session_lock',
        f"{_DEAD}::test_a_heartbeat_between_the_look_and_the_decision",
    ),
    mutation(
        "a takeover skips a heartbeat row that is locked",
        "a worker's loop waits for the takeover of another worker",
        "store/heartbeats.py",
        "{session_lock.is_free(cursor.db.alias)} FOR UPDATE SKIP LOCKED",
        "{session_lock.is_free(cursor.db.alias)} FOR UPDATE",
        f"{_DEAD}::test_two_workers_find_a_dead_one_at_the_same_time",
    ),
    mutation(
        "a dead worker keeps its row until all of its leases are released",
        "a lease that was locked during the takeover stays with the dead worker until it expires",
        "protocol/takeover.py",
        "        all_released = leases.release_unlocked(cursor, dead)\n",
        "        all_released = leases.release_unlocked(cursor, dead) or True\n",
        f"{_DEAD}::test_a_lease_that_is_locked_is_taken_over_later",
    ),
    mutation(
        "only the server of a session lock judges it",
        "on another node of a cluster, every lock looks free and every silent worker dead",
        "store/connection/session_lock.py",
        "CASE WHEN LEFT(session_lock, 23) = {_prefix(using)} THEN IS_FREE_LOCK",
        "CASE WHEN session_lock <> '' THEN IS_FREE_LOCK",
        f"{_DEAD}::test_a_lock_of_another_server_says_nothing",
    ),
    mutation(
        "a heartbeat names a session lock only while the session holds it",
        "while an earlier session of the worker holds the lock, the worker looks dead as soon as that session ends",
        "store/connection/session_lock.py",
        "AND {taken}, {name}",
        "AND {taken} >= 0, {name}",
        f"{_SESSIONS}::test_an_earlier_session_of_the_worker_holds_the_lock",
    ),
    mutation(
        "a worker detects that its sessions are shared",
        "behind a proxy, the lock of another session decides whether the worker is dead",
        "store/connection/session_lock.py",
        "        if session != self._session:\n",
        "        if session is None:\n",
        f"{_SESSIONS}::test_sessions_that_are_shared",
    ),
    mutation(
        "a worker takes its lock as soon as it has reconnected",
        "while it reads its partitions again, it looks dead",
        "store/connection/session_lock.py",
        "            set_timeouts()\n            lock.hold()\n",
        "            set_timeouts()\n            lock._connection or lock.hold()\n",
        f"{_SESSIONS}::test_a_worker_that_reconnects_takes_its_lock_again",
    ),
)
