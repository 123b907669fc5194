"""Guards against late commits: the gate, the settled offset that it limits, and the second look."""

from __future__ import annotations

from .mutation import Edit, Mutation, mutation

_GATE = "protocol/settling/test_gate.py"

MUTATIONS: tuple[Mutation, ...] = (
    mutation(
        "publishers lock a slot of the gate",
        "who settles finds every slot free: a message that commits late is below the watermark, and lost",
        "store/gates.py",
        "return sql, [topic, slot_name(gate_of(topic), 0)[:-3]]",
        'return "%s", [topic]',
        f"{_GATE}::test_a_publisher_holds_one_slot_until_its_transaction_ends[READ COMMITTED-publish]",
        f"{_GATE}::test_nothing_at_or_above_an_open_offset_is_settled",
    ),
    mutation(
        "settling waits until each slot was free",
        "an offset is called settled while its transaction is open: the message is lost when it commits",
        "protocol/settling.py",
        "self._busy -= session.run(self.using, look)",
        "self._busy -= wanted | session.run(self.using, look)",
        f"{_GATE}::test_nothing_at_or_above_an_open_offset_is_settled",
    ),
    mutation(
        "what is free now is asked of the locks",
        "a slot that a publisher holds is called free: the message is lost when it commits",
        "store/gates.py",
        " FOR UPDATE SKIP LOCKED",
        "",
        f"{_GATE}::test_a_held_slot_is_found_however_many_are_asked_for",
    ),
    mutation(
        "the publisher's side of the gate names its index",
        "the lock may fall on an entry of an index that nobody looks at: the gate is open",
        "store/gates.py",
        'f"(SELECT %s FROM queue_offsets {_INDEX} WHERE',
        'f"(SELECT %s FROM queue_offsets WHERE',
        "protocol/guards/test_gate.py::test_publishing_names_the_index_of_its_lock",
    ),
    mutation(
        "the settler's side of the gate names its index",
        "held slots look free by way of another index: the gate is open",
        "store/gates.py",
        'f"SELECT partition_key FROM queue_offsets {_INDEX} WHERE',
        'f"SELECT partition_key FROM queue_offsets FORCE INDEX (queue_offsets_groups) WHERE',
        f"{_GATE}::test_a_held_slot_is_found_however_many_are_asked_for",
        f"{_GATE}::test_both_sides_of_the_gate_use_the_same_index",
    ),
    mutation(
        "dead letters go through the gate",
        "a dead letter whose transaction commits late is lost for the groups of its topic",
        "store/dead_letter_copies.py",
        "gate, gate_params = locking_topic(dead_topic)",
        'gate, gate_params = "%s", [dead_topic]',
        "protocol/guards/test_gate.py::test_a_dead_letter_holds_a_slot_until_its_transaction_ends",
    ),
    mutation(
        "without its gate's row nothing is published",
        "in a database whose gate rows were deleted, messages are published with no lock at all, and may be lost",
        "store/gates.py",
        'f"(SELECT %s FROM queue_offsets {_INDEX} WHERE',
        'f"(SELECT MAX(t) FROM (SELECT %s AS t) x LEFT JOIN queue_offsets {_INDEX} ON',
        f"{_GATE}::test_without_its_gate_nothing_is_published[STRICT_TRANS_TABLES-publish]",
    ),
    Mutation(
        "a watermark stays at or below what is settled",
        "it passes a message that is not committed yet, which is never delivered then",
        (
            Edit(
                "protocol/watermarks.py", "settled = self.feed.told(context.topic)", "settled = context.tail"
            ),
            Edit("protocol/watermarks.py", "        settled = min(settled, found.settled)\n", ""),
        ),
        ("protocol/guards/test_watermark.py::test_a_watermark_stays_below_an_open_transaction",),
    ),
    mutation(
        "who leaves moves the watermarks that waited for settling",
        "what a worker has done before it ended is kept until another one works for the group",
        "protocol/watermarks.py",
        "        self._hear_settled()\n",
        "",
        "protocol/guards/test_watermark.py"
        "::test_who_leaves_moves_the_watermarks_that_waited_for_an_open_transaction",
    ),
    Mutation(
        "a start stays at or below what is settled",
        "a group that begins with the newest never gets a message that commits late",
        (
            Edit(
                "service/registration.py",
                "return (settled if isinstance(start, str)",
                "return (goal if isinstance(start, str)",
            ),
            Edit("service/registration.py", "min(above, settled)", "above"),
        ),
        ("features/groups/test_starts.py::test_start_latest_loses_nothing_that_commits_late",),
    ),
    mutation(
        "holes are looked at again",
        "a message that commits late waits for as long as any other transaction of its gate is open",
        "protocol/tailer.py",
        "            self._sweep(tail)\n",
        "",
        "protocol/guards/test_second_look.py::test_a_late_commit_is_delivered_while_nothing_settles",
    ),
    mutation(
        "the watermark's look corrects memory",
        "a message that memory has lost is delivered by the partition's next owner at the earliest",
        "protocol/watermarks.py",
        "            self._heal(partitions[name], offset)\n",
        "            pass\n",
        "protocol/guards/test_second_look.py::test_what_memory_has_lost_is_found_by_the_watermark",
    ),
    mutation(
        "the queue's own transactions run at READ COMMITTED",
        "where a project asks for REPEATABLE READ, looks are older than what they decide, and locks cover more",
        "store/connection/session.py",
        'if getattr(connection, "isolation_level", None) != level.lower():',
        "if False:",
        "protocol/guards/test_isolation.py::test_own_transactions_read_what_is_committed",
    ),
    mutation(
        "topics seldom share a gate",
        "transactions that publish to one topic and overlap without end stop deletion in others",
        "store/gates.py",
        "SLOT_MS = 64, 64, 500",
        "SLOT_MS = 32, 64, 500",
        f"{_GATE}::test_transactions_that_overlap_without_end_hold_back_no_other_topic",
    ),
    mutation(
        "a slot returns after half a minute",
        "transactions of that length that overlap stop deletion in their own topic",
        "store/gates.py",
        "SLOT_MS = 64, 64, 500",
        "SLOT_MS = 64, 64, 200",
        f"{_GATE}::test_half_a_minute_of_publishing_leaves_slots_for_those_that_follow",
    ),
    mutation(
        "gates of two kinds are never there together",
        "publishers with the old code lock rows that no worker looks at: what they commit late is lost",
        "store/gates.py",
        "if missing and found <= names:",
        "if missing:",
        "features/test_migrations.py::test_the_rows_of_eight_gates_and_of_many_are_never_there_together",
    ),
)
