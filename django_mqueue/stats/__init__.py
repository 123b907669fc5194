"""Numbers for people: counts, rates, latencies, lag, and what blocks deletion. Most are public in ``inspect``.

Each number costs a bounded number of rows, however large the tables are.
It imports ``service`` and lower layers. The protocol never imports it.
"""
