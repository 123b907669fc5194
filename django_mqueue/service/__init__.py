"""The public functions: publish, subscribe, requests, redrive, reset, pause, release, and ``Subscription``.

They check arguments, run in the caller's transaction or in one of their own, and record operators' actions.
It imports ``protocol``, ``store`` and lower layers.
"""
