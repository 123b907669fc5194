"""The rules for the steps of a user, by the worklist's permissions and the assignee of the item."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .registry import PERMISSIONS, Worklist, worklists
from .states import (
    ASSIGN,
    ASSIGNED,
    AUTOMATE,
    CANCEL,
    COMMENT,
    DELAY,
    FINISH,
    HAND_BACK,
    MOVE,
    SET_DUE,
    TAKE,
    UNASSIGN,
    VERBS,
    is_allowed,
)

if TYPE_CHECKING:
    from .models import WorkItem

ALL_MAY = {
    COMMENT: "view",
    TAKE: "take",
    ASSIGN: "assign",
    UNASSIGN: "assign",
    AUTOMATE: "assign",
    SET_DUE: "assign",
    CANCEL: "assign",
}
"""The permission for verbs that do not depend on the assignee."""


def has(user: Any, worklist: Worklist, right: str) -> bool:
    """Return whether the user has a permission on a worklist. Each of the permissions includes ``view``."""
    rights = PERMISSIONS if right == "view" else (right,)
    return any(user.has_perm(worklist.permission(one)) for one in rights)


def may_ever(user: Any, worklist: Worklist, verb: str) -> bool:
    """Return whether there is a state in which the user may take this step."""
    right = ALL_MAY.get(verb)
    if right in ("view", "assign"):
        return has(user, worklist, right)
    rights = ("take", "assign", "review") if verb in (MOVE, FINISH) else ("take", "assign")
    return any(has(user, worklist, right) for right in rights)


def visible(user: Any) -> list[Worklist]:
    """Return the worklists whose items the user may view."""
    return [worklist for worklist in worklists() if has(user, worklist, "view")]


def refusal(item: WorkItem, verb: str, user: Any) -> str | None:
    """Return why the user may not take this step; None if the user may. ``is_allowed`` checks the state."""
    worklist = item.rules
    state = worklist.options.states.get(item.state)
    is_own = item.assignee_id is not None and item.assignee_id == user.pk
    if verb == AUTOMATE and any(one.required for one in worklist.options.states.values()):
        return "the handler would skip the required review: only a program may do this"
    if verb == TAKE and not is_own and item.assignee_id is not None:
        right = "assign"  # A delayed item of another user.
    elif verb in ALL_MAY:
        right = ALL_MAY[verb]
    elif verb in (MOVE, FINISH) and state is not None:
        right = "review"
        if not state.own and has(user, worklist, right) and _moved_here(item, user):
            return f"state {state.name!r} needs another user: you moved the item into it, or were its assignee then"
    elif verb == HAND_BACK:
        if has(user, worklist, "take") and not is_own:
            return "only the user to whom the item is assigned may hand it back"
        right = "take"
    else:  # Finish, delay or move an item in a built-in state.
        is_taker = is_own or (verb == DELAY and item.state != ASSIGNED)
        if has(user, worklist, "assign") or (is_taker and has(user, worklist, "take")):
            return None
        if has(user, worklist, "take"):
            return "the item is not assigned to you"
        right = "take"
    return None if has(user, worklist, right) else f"it needs the permission {worklist.permission(right)!r}"


def _moved_here(item: WorkItem, user: Any) -> bool:
    """Return whether the user moved the item into its present state, or was its assignee then."""
    step = item.history.filter(after=item.state).exclude(before=item.state).last()
    if step is None:
        return False
    # Compared as text, because JSON stores a UUID primary key as text.
    return str(user.pk) in (str(step.actor_id), str(step.data.get("assignee_id")))


def verbs_for(item: WorkItem, user: Any) -> list[str]:
    """Return the verbs that the item's state and the user's permissions allow now."""
    states = item.rules.options.states
    return [
        verb for verb in VERBS if is_allowed(states, verb, item.state) and refusal(item, verb, user) is None
    ]
