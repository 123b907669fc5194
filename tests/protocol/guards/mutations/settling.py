"""Guards against late commits: the gate, the settled offset, and the search for missing offsets."""

from __future__ import annotations

from .mutation import Edit, Mutation, mutation

_GATE = "protocol/settling/test_gate.py"

MUTATIONS: tuple[Mutation, ...] = (
    mutation(
        "publishers lock a slot of the gate",
        "settling finds every slot free, and a message that commits late lies below the watermark and is"
        " lost",
        "store/gates.py",
        "return LOCK_SLOT, [topic, slot_name(gate_of(topic), 0)[:-3]]",
        'return "%s", [topic]',
        f"{_GATE}::test_a_publisher_holds_one_slot_until_its_transaction_ends[READ COMMITTED-publish]",
        f"{_GATE}::test_nothing_at_or_above_an_open_offset_is_settled",
    ),
    mutation(
        "a settling round waits until each slot of the gate was free once",
        "an offset counts as settled while its transaction is open, and the message is lost when it commits",
        "protocol/settling.py",
        "self._busy -= session.run(self.using, partial(",
        "self._busy -= self._busy | session.run(self.using, partial(",
        f"{_GATE}::test_nothing_at_or_above_an_open_offset_is_settled",
    ),
    mutation(
        "the query for free slots locks them and skips held slots",
        "a slot that a publisher holds counts as free, and the message is lost when it commits",
        "store/gates.py",
        " FOR UPDATE SKIP LOCKED",
        "",
        f"{_GATE}::test_a_held_slot_is_found_however_many_are_asked_for",
    ),
    mutation(
        "the publisher's lock on the gate names its index",
        "the lock may be on an index entry that settling never reads, so the gate is open",
        "store/gates.py",
        'f"(SELECT %s FROM queue_offsets {_INDEX} WHERE',
        'f"(SELECT %s FROM queue_offsets WHERE',
        "protocol/guards/test_gate.py::test_publishing_names_the_index_of_its_lock",
    ),
    mutation(
        "the settling query on the gate names its index",
        "the query reads another index, where held slots look free, so the gate is open",
        "store/gates.py",
        'f"SELECT partition_key FROM queue_offsets {_INDEX} WHERE',
        'f"SELECT partition_key FROM queue_offsets FORCE INDEX (queue_offsets_groups) WHERE',
        f"{_GATE}::test_a_held_slot_is_found_however_many_are_asked_for",
        f"{_GATE}::test_both_sides_of_the_gate_use_the_same_index",
    ),
    mutation(
        "dead letters pass the gate",
        "groups of the dead-letter topic lose a dead letter whose transaction commits late",
        "store/dead_letters.py",
        "gate, gate_params = locking_topic(dead_topic)",
        'gate, gate_params = "%s", [dead_topic]',
        "protocol/guards/test_gate.py::test_a_dead_letter_holds_a_slot_until_its_transaction_ends",
    ),
    mutation(
        "a publish fails if the row of its gate slot is missing",
        "in a database without gate rows, messages are published without a lock and may be lost",
        "store/gates.py",
        'f"(SELECT %s FROM queue_offsets {_INDEX} WHERE',
        'f"(SELECT MAX(t) FROM (SELECT %s AS t) x LEFT JOIN queue_offsets {_INDEX} ON',
        f"{_GATE}::test_without_its_gate_nothing_is_published[STRICT_TRANS_TABLES-publish]",
    ),
    Mutation(
        "a watermark stays at or below the settled offset",
        "it passes a message that is not committed yet, and the message is never delivered",
        (
            Edit(
                "protocol/watermarks.py",
                "settled = self.tailer.shared_settled(state.topic)",
                "settled = state.tail",
            ),
            Edit("protocol/watermarks.py", "        settled = min(settled, found.settled)\n", ""),
        ),
        ("protocol/guards/test_watermark.py::test_a_watermark_stays_below_an_open_transaction",),
    ),
    mutation(
        "a worker that stops moves the watermarks that waited for settling",
        "its finished messages stay in the log until another worker runs for the group",
        "protocol/watermarks.py",
        "        self._note_settled()\n",
        "",
        "protocol/guards/test_watermark.py"
        "::test_who_leaves_moves_the_watermarks_that_waited_for_an_open_transaction",
    ),
    Mutation(
        "a group starts at or below the settled offset",
        "a group that starts at `latest` never gets a message that commits late",
        (
            Edit(
                "service/registration.py",
                "return (settled if isinstance(start, str)",
                "return (log.newest(using, topic) if isinstance(start, str)",
            ),
            Edit("service/registration.py", "min(above, settled)", "above"),
        ),
        ("features/groups/test_starts.py::test_start_latest_loses_nothing_that_commits_late",),
    ),
    mutation(
        "the tailer reads missing offsets again",
        "a message that commits late waits until no other transaction of its gate is open",
        "protocol/tailer.py",
        "            self._sweep(tail, is_late=woken and arrivals == before)\n",
        "",
        "protocol/guards/test_missed_messages.py::test_a_late_commit_is_delivered_while_nothing_settles",
    ),
    mutation(
        "the watermark query finds messages that the consumer state lacks",
        "only the next owner of the partition delivers such a message",
        "protocol/watermarks.py",
        "            self._add_missed(partitions[name], offset)\n",
        "            pass\n",
        "protocol/guards/test_missed_messages.py::test_what_memory_has_lost_is_found_by_the_watermark",
    ),
    mutation(
        "the queue's own transactions run at READ COMMITTED",
        "in a project that uses REPEATABLE READ, they read old snapshots and lock too many rows",
        "store/connection/session.py",
        'if getattr(connection, "isolation_level", None) != level.lower():',
        "if False:",
        "protocol/guards/test_isolation.py::test_own_transactions_read_what_is_committed",
    ),
    mutation(
        "the topics are spread over 64 gates",
        "overlapping transactions that publish to one topic stop deletion in other topics",
        "store/gates.py",
        "SLOT_MS = 64, 64, 500",
        "SLOT_MS = 32, 64, 500",
        f"{_GATE}::test_transactions_that_overlap_without_end_hold_back_no_other_topic",
    ),
    mutation(
        "a slot of the gate is used again only after half a minute",
        "overlapping transactions of nearly this length stop deletion in their own topic",
        "store/gates.py",
        "SLOT_MS = 64, 64, 500",
        "SLOT_MS = 64, 64, 200",
        f"{_GATE}::test_half_a_minute_of_publishing_leaves_slots_for_those_that_follow",
    ),
    mutation(
        "gate rows of two releases never exist together",
        "publishers of the old release lock rows that no worker checks, and their late commits are lost",
        "store/gates.py",
        "if missing and found <= names:",
        "if missing:",
        "features/test_migrations.py::test_the_rows_of_eight_gates_and_of_many_are_never_there_together",
    ),
)
