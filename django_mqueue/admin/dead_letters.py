"""Dead letters: their list."""

from __future__ import annotations

from .messages import MessageAdmin


class DeadLetterAdmin(MessageAdmin):
    """The rows of dead-letter topics."""
