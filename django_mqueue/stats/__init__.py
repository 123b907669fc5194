"""Statistics for operators: counts, rates, latencies, lag, retention blockers. Most are in ``inspect``.

Each number costs a bounded number of rows, however large the tables are.
It imports ``service`` and lower layers. The protocol never imports this package.
"""
