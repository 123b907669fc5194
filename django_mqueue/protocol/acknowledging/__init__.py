"""How deliveries end: ack, nack, reject, postpone, extend, one at a time or many, also in the caller's transaction.

Each is a compare-and-set on the token of the delivery and on the lease.
It imports ``store``, ``policy`` and its parent package.
"""
