"""Settle and extend deliveries: ack, nack, reject, postpone, extend, for one or many, also in a caller's transaction.

Each is a compare-and-set on the token of the delivery and on the lease.
It imports its parent package, ``store`` and lower layers.
"""
