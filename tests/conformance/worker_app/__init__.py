"""An app for the worker processes of ``ours.System``."""
