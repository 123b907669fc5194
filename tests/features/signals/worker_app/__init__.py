"""An app of worker processes whose signals have receivers."""
