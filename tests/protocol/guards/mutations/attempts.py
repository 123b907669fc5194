"""Guards of attempts, order and shares: quarantine, early claims, one clock, an owner for every partition."""

from __future__ import annotations

from .mutation import Mutation, mutation

_SHARES = "features/leases/test_shares.py"
_POLICY = "unit/policy/test_shares_and_solitude.py"
_DYING = "protocol/hostile/test_dying_connections.py"
_DEADLOCKS = "features/atomic/test_deadlocks.py"
_CLOSED = "features/workers/test_closed_connections.py"

MUTATIONS: tuple[Mutation, ...] = (
    mutation(
        "a quarantined message runs alone",
        "a message that kills workers makes its neighbours fail, and they are dead-lettered with it",
        "policy/quarantine.py",
        "        if not quarantined or not in_flight:\n",
        "        if not quarantined or not in_flight or self.quiet_for:\n",
        f"{_POLICY}::test_a_suspect_runs_once_nothing_else_does",
    ),
    mutation(
        "no message starts while a quarantined message runs alone",
        "a message that is claimed meanwhile is blamed if the worker dies",
        "policy/quarantine.py",
        "        if alone:\n            return Mode.WAIT\n",
        "",
        "protocol/guards/test_alone.py::test_others_wait_while_a_suspect_runs_alone",
    ),
    mutation(
        "only a worker's death while the message runs alone counts as a failure",
        "if a worker is killed from outside, all its messages lose an attempt, until they are dead-lettered",
        "store/delivery_state.py",
        '" failure_count = failure_count + alone, retry_count',
        '" failure_count = failure_count + 1, retry_count',
        f"{_DYING}::test_the_connection_dies_while_a_suspect_is_dealt_with"
        "[INSERT INTO queue_messages-in the burial]",
    ),
    mutation(
        "a worker's death while the message runs alone counts as a failure",
        "a message that kills its worker kills workers forever",
        "store/delivery_state.py",
        '" failure_count = failure_count + alone, retry_count',
        '" retry_count',
        f"{_DYING}::test_the_connection_dies_while_a_suspect_is_dealt_with"
        "[INSERT INTO queue_messages-in the burial]",
    ),
    mutation(
        "only a message that reached a handler has used an attempt",
        "a message that a dead worker had claimed ahead loses an attempt that never happened",
        "store/delivery_state.py",
        "retry_count = retry_count + handed",
        "retry_count = retry_count + 1",
        "protocol/guards/test_claimed_ahead.py::test_what_no_handler_was_given_has_used_no_attempt",
    ),
    mutation(
        "a postponed delivery counts as no attempt",
        "a message that only waits runs out of attempts",
        "store/acknowledgements.py",
        'else "s.handed = 0"',
        'else "s.handed = s.handed"',
        "features/dead_letters/test_dead_letters.py::test_postpone_uses_up_no_attempt",
    ),
    mutation(
        "a worker checks a handler's connections before their use",
        "each idle connection that the server closed costs an attempt",
        "workers/connection_cleanup.py",
        "            connection.health_check_enabled = True  # type: ignore[attr-defined]\n",
        "",
        f"{_CLOSED}::test_closed_idle_connections_use_no_attempt[plain-kill]",
    ),
    mutation(
        "an attempt that the server rolled back is not counted",
        "a connection that the server closes during an atomic handler costs an attempt",
        "workers/handler_calls.py",
        "    if times > UNCOUNTED_MOST:\n",
        "    if times:\n",
        f"{_CLOSED}::test_a_connection_closed_while_the_handler_runs[atomic]",
        f"{_CLOSED}::test_a_connection_closed_while_the_handler_runs[atomic batch]",
    ),
    mutation(
        "the number of uncounted attempts is limited",
        "a message whose handler always loses its connection is delivered forever",
        "workers/handler_calls.py",
        "    if times > UNCOUNTED_MOST:\n        return None\n",
        "",
        f"{_CLOSED}::test_a_message_whose_connection_is_always_closed_is_dead_lettered",
    ),
    mutation(
        "only attempts that were rolled back are uncounted",
        "a handler that is not atomic repeats effects that were kept, and no attempt is counted",
        "workers/handler_calls.py",
        "handler.is_atomic(deliveries[0]) and _ended",
        "_ended",
        f"{_CLOSED}::test_a_connection_closed_while_the_handler_runs[plain]",
        f"{_DEADLOCKS}::test_a_lock_wait_timeout_of_another_handler_uses_an_attempt",
    ),
    mutation(
        "a deadlock or a lock wait timeout in an atomic handler costs no attempt",
        "atomic handlers that update the same row dead-letter good messages",
        "workers/handler_calls.py",
        " or errors.is_retriable(exception)",
        "",
        f"{_DEADLOCKS}::test_a_deadlock_of_two_atomic_handlers_uses_no_attempt[one]",
        f"{_DEADLOCKS}::test_a_lock_wait_timeout_of_an_atomic_handler_uses_no_attempt[batch]",
    ),
    mutation(
        "strict order delivers one message of a key at a time",
        "a message is delivered before an earlier message of its key is done",
        "protocol/partition_state.py",
        "        if self.in_flight or self.quarantined:\n            return [], []\n",
        "",
        "features/strict/test_by_hand.py::test_the_next_of_a_key_comes_when_the_one_before_is_acked",
    ),
    mutation(
        "a partition moves only when none of its messages is in flight",
        "each worker that joins causes a second delivery of a healthy worker's messages",
        "protocol/membership.py",
        "if p.leaving and not p.in_flight]",
        "if p.leaving]",
        "protocol/guards/test_moving.py::test_what_is_in_flight_keeps_its_partition",
    ),
    mutation(
        "all decisions use the clock of the database",
        "a worker with a wrong clock delivers too early or never, and takes leases that are still valid",
        "store/connection/session.py",
        "        connection._mqueue_charset_of = raw\n    return cursor\n",
        "        connection._mqueue_charset_of = raw\n    import time\n"
        "    cursor.execute('SET timestamp = %s', [time.time()])\n    return cursor\n",
        "protocol/guards/test_clock.py::test_a_subscriber_with_a_wrong_clock_steals_no_lease",
    ),
    mutation(
        "fair shares are the quotient, plus one for the first members",
        "with shares rounded up, the last member of a group gets no partition while others have too many",
        "policy/shares.py",
        "return quotient + (1 if ranked.index(member) < remainder else 0)",
        "return quotient + (1 if remainder else 0)",
        f"{_POLICY}::test_twelve_over_five",
        f"{_SHARES}::test_12_partitions_over_5_subscribers_are_3_3_2_2_2",
    ),
    mutation(
        "a worker with more than its share gives partitions up",
        "a worker that starts later gets no partition",
        "protocol/membership.py",
        "self._leave(max(-wanted, 0))",
        "self._leave(min(-wanted, 0))",
        f"{_SHARES}::test_one_who_was_alone_gives_up_what_is_too_much_when_others_come",
    ),
    mutation(
        "any member takes a lease that stays free",
        "a free partition has no owner if its designated member does not take it",
        "protocol/membership.py",
        "        elif free:\n",
        "        elif not free:\n",
        "protocol/guards/test_orphans.py::test_free_leases_that_their_member_does_not_take_find_an_owner",
    ),
    mutation(
        "a member with its share leaves a lease to others that has just been released",
        "the members of a large group take what others release, and release it again",
        "protocol/membership.py",
        "int(ORPHANED_AFTER * since_last * 1000)",
        "0",
        "protocol/guards/test_orphans.py::test_a_lease_that_was_just_released_is_not_taken_above_the_share",
    ),
    mutation(
        "a worker that loses the race for one new partition leases the others",
        "its transaction fails with an error",
        "store/leases.py",
        '"INSERT IGNORE INTO queue_partition_leases"',
        '"INSERT INTO queue_partition_leases"',
        "protocol/interleavings/test_partitions.py::test_two_take_overlapping_sets_of_new_partitions",
    ),
    mutation(
        "any member takes a new partition that stays without an owner",
        "a new partition has no owner if its designated member does not take it",
        "protocol/membership.py",
        "if self._is_designated(name, max(self.candidates[name] - ORPHANED_AFTER, 0)):",
        "if self._is_designated(name):",
        "protocol/guards/test_orphans.py::test_new_partitions_that_their_member_does_not_take_find_an_owner",
    ),
    mutation(
        "for strict handlers, the tailer reads missing offsets before it reports new rows",
        "a handler gets a message before a message of the same key that was committed earlier",
        "protocol/tailer.py",
        "if any(listener.strict for listener in tail.listeners):",
        "if not tail.listeners:",
        "features/strict/test_order_of_commits.py::test_what_committed_late_comes_before_what_was_sent_after_its_commit",
    ),
    mutation(
        "for strict handlers, reading continues above the last offset below which all is delivered",
        "during a backlog, a handler gets a message before a message of the same key that was committed"
        " earlier",
        "protocol/fetching.py",
        "place.scanned if strict else place.read_to",
        "place.read_to",
        "features/strict/test_order_of_commits.py::test_the_same_where_the_log_is_read_on_before_the_tail_is",
    ),
    mutation(
        "the count of uncounted attempts survives when a partition is read again",
        "a message whose handler always meets a deadlock is delivered forever",
        "protocol/fetching.py",
        "new.idle_since, new.uncounted = before.idle_since, before.uncounted",
        "new.idle_since = before.idle_since",
        f"{_DEADLOCKS}::test_attempts_that_are_not_counted_stay_known_when_the_partition_is_read_again",
    ),
)
