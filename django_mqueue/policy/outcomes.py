"""How a message that is done ended for a group. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

HANDLED, SKIPPED, DEAD_LETTERED, REDRIVEN, REMOVED, SET_ASIDE, BEFORE_START, NOT_RECORDED = OUTCOMES = (
    "handled", "skipped", "dead_lettered", "redriven", "removed", "set_aside", "before_start", "not_recorded",
)  # fmt: skip
"""A handler did it; its filter did not want it; it is, or was, a dead letter; it was sent back from there; somebody
removed it by hand; it waits, or waited, for a retry apart from the log; the group began after it; nothing tells."""

REMOVED_BY_HAND = "removed by hand"
"""Among the errors of a message that was removed."""
ASIDE_AT = 1
"""``invisible_until`` of what is done in the log, for it comes again by the scheduled messages. No other row has it."""


def outcome(
    state: Mapping[str, Any], errors: Sequence[Mapping[str, Any]], *, has_letter: bool, came_back: bool
) -> str:
    """``state``: columns of a group's delivery state that is acked; ``errors`` are its failed attempts.

    ``has_letter``: its dead letter is there. ``came_back``: the log holds a copy of the message for the group.
    """
    if has_letter:
        return DEAD_LETTERED
    if int(state["invisible_until"]) == ASIDE_AT:
        return SET_ASIDE
    # An attempt that fails for good, or is removed, is noted in the statement that ends the message.
    last = errors[-1] if errors else {}
    if last and last.get("at") == int(state["acked_at"] or 0):
        if last.get("error") == REMOVED_BY_HAND:
            return REMOVED
        return REDRIVEN if came_back else DEAD_LETTERED
    if not state["delivered_to"]:
        return NOT_RECORDED
    return HANDLED if state["handed"] else SKIPPED
