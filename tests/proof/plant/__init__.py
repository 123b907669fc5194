"""An app: the handlers of a run's workers."""
