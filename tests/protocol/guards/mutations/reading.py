"""Guards of Spark batches that are read while transactions are open."""

from __future__ import annotations

from .mutation import mutation

_OPEN = "spark/test_open_transactions.py"

MUTATIONS = (
    mutation(
        "a batch ends just before the oldest uncommitted message",
        "a reader that continues from the end of a batch misses a message that commits late",
        "spark/reader/settling.py",
        "oldest.offset - 1 if oldest else goal",
        "goal",
        f"{_OPEN}::test_a_batch_ends_before_a_transaction_that_published_and_is_open[nobody reads it]",
    ),
    mutation(
        "while a transaction is open, a batch reads beyond the settled offset",
        "if no process settles the topic, it returns nothing, without a warning",
        "spark/reader/settling.py",
        "            found[topic] = oldest.offset - 1 if oldest else goal\n            if oldest:\n",
        "            if oldest:\n",
        f"{_OPEN}::test_nothing_is_left_out_above_which_a_transaction_publishes[nobody reads it]",
    ),
    mutation(
        "the search for the oldest uncommitted message uses the primary key",
        "an INSERT that waits for a lock has only this index entry: the batch passes it, and it commits late",
        "spark/sql/bulk.py",
        'FORCE INDEX (PRIMARY)"\n        " WHERE topic',
        'FORCE INDEX (queue_messages_tail)"\n        " WHERE topic',
        f"{_OPEN}::test_what_waits_for_a_gap_in_the_index_of_ids_is_not_passed[nobody reads it]",
    ),
)
