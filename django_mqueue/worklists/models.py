"""The three tables of worklists: items, their attributes, and their history.

A comment at each index names what uses it.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib.contenttypes.fields import GenericForeignKey
from django.contrib.contenttypes.models import ContentType
from django.core.serializers.json import DjangoJSONEncoder
from django.db import connections, models, transaction
from django.utils.translation import gettext_lazy as _

from .. import conf
from ..models import BINARY, key_column
from ..policy.durations import moment
from ..store.connection.session import latest_rows
from ..store.queries.group_rows import now_ms
from . import registry, states, steps
from .fields import MomentField
from .rights import has

if TYPE_CHECKING:
    from .registry import Worklist


class WorkItem(models.Model):
    """A work item: one message of a worklist's source, until a person or a handler has finished it.

    Each method that changes the item is one transaction, and a savepoint inside the caller's. ``by`` is the user who
    does it; None: the program. The methods raise ``TransitionNotAllowed`` if the state or the user's permissions do not
    allow it, and ``ItemChanged`` if another step has changed the item since this object was read. Nothing is changed
    then.
    """

    worklist = key_column(registry.NAME_MAX, verbose_name=_("worklist"))
    state = key_column(states.NAME_MAX, verbose_name=_("state"))
    kind = key_column(191, blank=True, verbose_name=_("kind"))
    title = models.CharField(_("title"), max_length=200, db_collation=BINARY)
    assignee = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, db_index=False, related_name="+",
        verbose_name=_("assigned to"),
    )  # fmt: skip
    team = models.ForeignKey(
        "auth.Group", models.SET_NULL, null=True, blank=True, db_index=False, related_name="+", verbose_name=_("team")
    )  # fmt: skip
    linked_type = models.ForeignKey(ContentType, models.SET_NULL, null=True, db_index=False, related_name="+")
    linked_id = key_column(191, null=True)
    linked = GenericForeignKey("linked_type", "linked_id")
    message_id = key_column(255, help_text=_("The id of the message that the item was made from."))
    message_key = key_column(255, blank=True)
    message_kind = key_column(255, blank=True)
    message_offset = models.BigIntegerField(help_text=_("The offset of that message in the log."))
    payload = models.JSONField(encoder=DjangoJSONEncoder, null=True)
    headers = models.JSONField(encoder=DjangoJSONEncoder, default=dict)
    result = models.JSONField(_("result"), encoder=DjangoJSONEncoder, null=True)
    error = models.TextField(
        _("error"), blank=True, db_collation=BINARY, help_text=_("Why the handler gave the item to people.")
    )
    is_open = models.BooleanField(_("open"), default=True)
    is_automated = models.BooleanField(_("automated"), default=False, help_text=_("A handler finished it."))
    version = models.PositiveIntegerField(default=1, help_text=_("The number of its steps that changed it."))
    created_at = MomentField(_("created"))
    due_at = MomentField(_("due"), null=True)
    delayed_until = MomentField(_("delayed until"), null=True)
    ended_at = MomentField(_("ended"), null=True)
    failed_in_work = False
    """The last ``finish`` of this object ended with an error of the worklist's ``work``."""

    class Meta:
        db_table = "worklist_items"
        verbose_name = _("work item")
        verbose_name_plural = _("work items")
        default_permissions = ()
        constraints = [
            # intake: a message becomes one item, also if its group is reset.
            models.UniqueConstraint(fields=["message_offset", "worklist"], name="worklist_items_message"),
        ]
        indexes = [
            # find: open items by due date, by age, and by kind and age.
            models.Index(fields=["worklist", "is_open", "due_at"], name="worklist_items_due"),
            models.Index(fields=["worklist", "is_open", "created_at"], name="worklist_items_age"),
            models.Index(fields=["worklist", "kind", "is_open", "created_at"], name="worklist_items_kind"),
            # find: items in one state, by due date.
            models.Index(fields=["worklist", "state", "due_at"], name="worklist_items_state"),
            # find: items of a user, of a group of users, of an object, of a message (also intake).
            models.Index(fields=["assignee", "is_open", "due_at"], name="worklist_items_assignee"),
            models.Index(fields=["team", "is_open", "due_at"], name="worklist_items_team"),
            models.Index(fields=["linked_type", "linked_id", "created_at"], name="worklist_items_linked"),
            models.Index(fields=["message_id"], name="worklist_items_source"),
            # figures (covering), and the list of items that have ended.
            models.Index(
                fields=["worklist", "state", "ended_at", "kind", "is_automated", "created_at"],
                name="worklist_items_ended",
            ),
        ]

    def __str__(self) -> str:
        return self.title

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save a new item, or the columns in ``update_fields``.

        Raises ``TypeError`` without ``update_fields``: saving all columns would undo later steps.
        """
        if not self._state.adding and kwargs.get("update_fields") is None:
            raise TypeError(
                "a work item is changed by its methods; to save another column, give update_fields"
            )
        super().save(*args, **kwargs)

    @property
    def using(self) -> str:
        return self._state.db or conf.database()

    @property
    def topic(self) -> str:
        """The topic to which the item's steps are published."""
        return registry.topic_of(self.worklist)

    @property
    def rules(self) -> Worklist:
        """The declared worklist. Raises ``WorklistError`` if the project no longer declares it."""
        return registry.worklist_of(self.worklist)

    @property
    def history(self) -> models.QuerySet[WorkStep]:
        """The steps of the item, oldest first."""
        return self.steps.using(self.using).order_by("pk")

    def take(self, *, by: Any, comment: str = "") -> None:
        """Assign the item to ``by``. Needs the permission ``take``."""
        steps.check(self, states.TAKE, by)
        steps.change(self, "taken", by, comment, state=states.ASSIGNED, assignee=by, delayed_until=None)

    def assign(self, *, to: Any, by: Any = None, comment: str = "") -> None:
        """Assign the item to a user, or give it to a group of users, which makes it unassigned.

        In a declared state, the assignment to a user leaves the state as it is. Needs the permission ``assign``. Raises
        ``TypeError`` if ``to`` is neither, and ``ValueError`` for a user who may not take items of the worklist.
        """
        steps.check(self, states.ASSIGN, by)
        values: dict[str, Any] = {"delayed_until": None}
        if isinstance(to, steps.related(self, "assignee")):
            if not (to.is_active and has(to, self.rules, "take")):
                raise ValueError(
                    f"{to.get_username()} may not take items of {self.worklist}, or is not active"
                )
            values["assignee"] = to
            if self.state not in self.rules.options.states:
                values["state"] = states.ASSIGNED  # Otherwise it keeps its declared state.
        elif isinstance(to, steps.related(self, "team")):
            values |= {"assignee": None, "team": to, "state": states.UNASSIGNED}
        else:
            raise TypeError(f"to must be a user or a group of users, not {type(to).__name__}")
        steps.change(self, "assigned", by, comment, **values)

    def unassign(self, *, by: Any = None, comment: str = "") -> None:
        """Take the item from its assignee, or from the handler. Needs the permission ``assign``."""
        steps.check(self, states.UNASSIGN, by)
        steps.change(
            self, "unassigned", by, comment, state=states.UNASSIGNED, assignee=None, delayed_until=None
        )

    def hand_back(self, *, by: Any, comment: str = "") -> None:
        """Give the item back, so that others can take it. Only the assignee may do so."""
        steps.check(self, states.HAND_BACK, by)
        steps.change(self, "handed_back", by, comment, state=states.UNASSIGNED, assignee=None)

    def finish(self, *, by: Any = None, result: Any = None, comment: str = "") -> None:
        """Do the item's ``work`` and finish it, in one transaction.

        ``result``: a JSON value that is stored; None: what ``work`` returns. The assignee may do so, and users with
        ``assign``; in a declared state, users with ``review``. Raises what ``work`` raises.
        """
        steps.finish(self, by, result, comment)

    def delay(self, *, until: datetime | timedelta | float, by: Any = None, comment: str = "") -> None:
        """Delay the item until an aware datetime, or for a ``timedelta`` or seconds, by the database's clock.

        Then it is assigned or unassigned again, as before. Raises ``ValueError`` if ``until`` is not in the future.
        """
        steps.check(self, states.DELAY, by)
        at = steps.in_future(self, "until", until)
        steps.change(
            self, "delayed", by, comment, then=lambda: steps.send(self, steps.RETURN, at=at),
            state=states.DELAYED, delayed_until=at,
        )  # fmt: skip

    def move(self, state: str, *, by: Any = None, comment: str = "") -> None:
        """Move the item into another state that the worklist's declarations allow."""
        steps.check(self, states.MOVE, by)
        possible = states.moves(self.rules.options.states, self.state)
        if state not in possible:
            raise states.TransitionNotAllowed(
                f"item {self.pk} is {self.state}: it cannot move to {state!r}; allowed are {', '.join(possible)}"
            )
        values: dict[str, Any] = {"state": state}
        if state == states.UNASSIGNED:
            values["assignee"] = None
        elif state == states.ASSIGNED and self.assignee_id is None:
            values["state"] = states.UNASSIGNED
        steps.change(self, "moved", by, comment, **values)

    def automate(self, *, by: Any = None, comment: str = "") -> None:
        """Give the item to the handler, which does its ``work``. Needs the permission ``assign``."""
        steps.check(self, states.AUTOMATE, by)
        steps.change(
            self, "automated", by, comment, then=lambda: steps.send(self, steps.WORK), state=states.AUTOMATED,
            assignee=None, delayed_until=None, error="",
        )  # fmt: skip

    def set_due(self, *, at: datetime | timedelta | float | None, by: Any = None, comment: str = "") -> None:
        """Set the due date, its reminder and its escalation. ``at``: as ``until`` of ``delay``; None: no due date.

        Needs the permission ``assign``. Raises ``ValueError`` if ``at`` is not in the future.
        """
        steps.check(self, states.SET_DUE, by)
        due = None if at is None else steps.in_future(self, "at", at)

        def then() -> None:
            steps.send_due(self)
            if self.state == states.AUTOMATED:  # The earlier message has another version.
                steps.send(self, steps.WORK)
            elif self.state == states.DELAYED:
                steps.send(self, steps.RETURN, at=self.delayed_until)

        steps.change(self, "due_changed", by, comment, then=then, due_at=due)

    def cancel(self, *, by: Any = None, comment: str = "") -> None:
        """End the item without its work. Needs the permission ``assign``."""
        steps.check(self, states.CANCEL, by)
        end = moment(now_ms(self.using))
        steps.change(
            self, "cancelled", by, comment, state=states.CANCELLED, delayed_until=None, is_open=False, ended_at=end
        )  # fmt: skip

    def comment(self, text: str, *, by: Any = None) -> None:
        """Add a comment to the item's history. It conflicts with no other step. Needs the permission ``view``."""
        steps.check(self, states.COMMENT, by)
        if not text.strip():
            raise ValueError("text must not be empty")
        with transaction.atomic(using=self.using):
            # Lock first: the foreign key of the history takes a shared lock, and a later step could deadlock.
            current = steps.locked(self)
            steps.record(current, "commented", by, text, current.state)


class WorkAttribute(models.Model):
    """The value of an attribute that the worklist declares."""

    item = models.ForeignKey(WorkItem, models.CASCADE, related_name="attributes")
    worklist = key_column(registry.NAME_MAX)
    name = key_column(64)
    value = key_column(registry.VALUE_MAX)

    class Meta:
        db_table = "worklist_attributes"
        default_permissions = ()
        indexes = [
            # find: items by an attribute.
            models.Index(fields=["worklist", "name", "value", "item"], name="worklist_attributes_value"),
        ]

    def __str__(self) -> str:
        return f"{self.name}={self.value}"


class WorkStep(models.Model):
    """One step in the history of an item. ``actor_name`` remains if the user is deleted; '' is the program."""

    item = models.ForeignKey(WorkItem, models.CASCADE, related_name="steps")
    step = key_column(32)
    before = key_column(states.NAME_MAX, blank=True)
    after = key_column(states.NAME_MAX)
    actor = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+")
    actor_name = models.CharField(max_length=steps.NAME_MAX, blank=True, db_collation=BINARY)
    comment = models.TextField(blank=True, db_collation=BINARY)
    data = models.JSONField(encoder=DjangoJSONEncoder, default=dict)
    at = MomentField()

    class Meta:
        db_table = "worklist_steps"
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.step} by {self.actor_name or 'the program'}"


def unassign_items_of(sender: Any, instance: Any, using: str, **kwargs: Any) -> None:
    """Unassign the items of a user who is about to be deleted. Items in declared states keep their state."""
    items = WorkItem.objects.using(using).filter(assignee=instance, is_open=True, state=states.ASSIGNED)
    with latest_rows(connections[using]):
        found = list(items.select_for_update())  # Django sends ``pre_delete`` in a transaction.
    for item in found:
        steps.system_change(item, "unassigned", state=states.UNASSIGNED, assignee=None)
