"""The messages of one partition in a worker's memory."""

from __future__ import annotations

from django_mqueue.protocol.partition_state import Partition


def test_with_a_pause_a_retry_does_not_come_before_each_other_message() -> None:
    """A postponed job is due again after each pause. Another job, for which it may wait, has its turn."""
    partition = Partition("k", watermark=0, scanned=0, read_to=3, pause=60_000)
    partition.fresh.extend([2, 3])
    taken = []
    for now in range(5):
        partition.add_retry(1, now)
        taken.append(partition.take(1, now))
        assert partition.take(0, now) == ([], []), "another thread is free"
        partition.waiting.clear()
    assert taken == [([1], []), ([], [2]), ([1], []), ([], [3]), ([1], [])]


def test_without_a_pause_due_retries_come_first() -> None:
    partition = Partition("k", watermark=0, scanned=0, read_to=3)
    partition.fresh.extend([2, 3])
    for now in range(3):
        partition.add_retry(1, now)
        assert partition.take(1, now) == ([1], [])
