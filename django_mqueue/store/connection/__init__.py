"""Connections and transactions: retries, isolation, timeouts, encryption, and the differences of the two servers.

Every other module of ``store`` builds on ``session`` and ``dialect``.
"""
