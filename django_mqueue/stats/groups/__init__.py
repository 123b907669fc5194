"""Numbers about consumer groups: open messages, lag, oldest age, members, partitions, and previews of a reset.

Each number costs a bounded number of rows, however large the tables are.
It imports ``service`` and lower layers.
"""
