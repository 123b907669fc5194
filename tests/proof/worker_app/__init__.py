"""A Django app with the handlers of a run's workers."""
