"""Guards of Spark batches that are read while transactions are open."""

from __future__ import annotations

from .mutation import mutation

_OPEN = "spark/test_open_transactions.py"

MUTATIONS = (
    mutation(
        "a batch ends just before the oldest message that is not committed",
        "who reads on from where a batch ended misses a message that commits late",
        "spark/reader/settling.py",
        "oldest.offset - 1 if oldest else goal",
        "goal",
        f"{_OPEN}::test_a_batch_ends_before_a_transaction_that_published_and_is_open[nobody reads it]",
    ),
    mutation(
        "a batch does not end at what is settled while a transaction is open",
        "it returns nothing where nobody has settled the topic, and says so to nobody",
        "spark/reader/settling.py",
        "            found[topic] = oldest.offset - 1 if oldest else goal\n            if oldest:\n",
        "            if oldest:\n",
        f"{_OPEN}::test_nothing_is_left_out_above_which_a_transaction_publishes[nobody reads it]",
    ),
    mutation(
        "the oldest message that is not committed is looked for in the primary key",
        "an INSERT that waits for a lock has its row there alone: it is passed, and commits late",
        "spark/sql/bulk.py",
        'FORCE INDEX (PRIMARY)"\n            f" WHERE topic',
        'FORCE INDEX (queue_messages_tail)"\n            f" WHERE topic',
        f"{_OPEN}::test_what_waits_for_a_gap_in_the_index_of_ids_is_not_passed[nobody reads it]",
    ),
)
