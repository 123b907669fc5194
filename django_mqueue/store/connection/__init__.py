"""Connections and transactions: retries, isolation, timeouts, encryption, and the differences of the two servers.

The other modules of ``store`` build on ``session`` and ``dialect``.
It imports the exceptions, the instruments, ``policy.batching``, Django and the driver, and no other part of ``store``.
"""
