"""Make work items from the messages of a worklist's source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib.contenttypes.models import ContentType
from django.db import DatabaseError, models

from .. import conf
from ..exceptions import Reject
from ..messages import Message
from ..policy.durations import moment, to_ms
from ..store.queries.group_rows import now_ms
from . import states, steps
from .models import WorkAttribute, WorkItem
from .registry import VALUE_MAX, Worklist


def make_item(worklist: Worklist, message: Message) -> None:
    """Make the item of a message, in the transaction that acknowledges the message. A repeated message makes none.

    Raises ``Reject``, which dead-letters the message, if it cannot become an item.
    """
    using = conf.database()
    if WorkItem.objects.using(using).filter(worklist=worklist.name, message_offset=message.offset).exists():
        return
    try:
        item, attributes, is_automated = _item(worklist, message)
    except DatabaseError:
        raise
    except Exception as error:
        name = type(error).__name__
        raise Reject(
            f"the message cannot become an item of worklist {worklist.name!r}: {name}: {error}"
        ) from error
    now = now_ms(using)
    item.created_at = moment(now)
    if (due := worklist.due(message)) is not None:
        item.due_at = moment(now + to_ms("due", due))
    item.save(using=using, force_insert=True)
    WorkAttribute.objects.using(using).bulk_create(
        WorkAttribute(item=item, worklist=item.worklist, name=name, value=value)
        for name, value in attributes.items()
    )
    steps.record(item, "created", None, "", "")
    if is_automated:
        steps.send(item, steps.WORK)
    if item.due_at is not None:
        steps.send(item, steps.DUE, at=item.due_at)
        if worklist.options.remind_ms is not None:
            at = max(now, round(item.due_at.timestamp() * 1000) - worklist.options.remind_ms)
            steps.send(item, steps.REMIND, at=moment(at))


def _item(worklist: Worklist, message: Message) -> tuple[WorkItem, dict[str, str], bool]:
    """Return (unsaved item, attributes, a handler finishes it). Raise any exception if the message does not fit."""
    if isinstance(message.payload, bytes):
        raise TypeError("its payload is bytes, and a work item needs JSON")
    linked = worklist.link(message)
    item = WorkItem(
        worklist=worklist.name,
        kind=worklist.kind(message)[:191],
        title=worklist.title(message)[:200],
        message_id=message.id[:191],
        message_offset=message.offset,
        payload=message.payload,
        headers=dict(message.headers),
    )
    if linked is not None:
        _link(item, linked)
    attributes = checked_attributes(worklist, worklist.attributes(message))
    is_automated = bool(worklist.automate(message))
    item.state = states.AUTOMATED if is_automated else states.UNASSIGNED
    return item, attributes, is_automated


def _link(item: WorkItem, linked: Any) -> None:
    if not isinstance(linked, models.Model) or linked.pk is None:
        raise TypeError(f"link must return a saved model instance, not {linked!r}")
    item.linked_type = ContentType.objects.db_manager(item.using).get_for_model(linked)
    item.linked_id = str(linked.pk)


def checked_attributes(worklist: Worklist, given: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of attributes as they are stored. Raise ``ValueError`` for a name that is not declared."""
    known = worklist.options.attributes
    if wrong := sorted(set(given) - set(known)):
        declared = ", ".join(known) or "none"
        raise ValueError(
            f"worklist {worklist.name!r} has no attribute {wrong[0]!r}; its declaration names: {declared}"
        )
    found = {name: str(value) for name, value in given.items()}
    for name, value in found.items():
        if len(value) > VALUE_MAX:
            raise ValueError(f"attribute {name!r} may have at most {VALUE_MAX} characters, not {len(value)}")
    return found
