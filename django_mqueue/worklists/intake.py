"""Make work items from the messages of a worklist's source, and messages from items for a mask."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.contrib.contenttypes.models import ContentType
from django.db import Error, models

from ..drawing.payload_texts import compact
from ..exceptions import Reject
from ..messages import Message
from ..models import Message as LogRow
from ..policy.durations import moment, to_ms
from ..policy.encoding import check_whole_numbers
from ..protocol.delivery import Delivery
from ..results import FailedAttempt, Inspected
from ..store.connection.errors import is_value_refused
from ..store.queries.group_rows import now_ms
from . import states, steps
from .models import WorkAttribute, WorkItem
from .registry import VALUE_MAX, Worklist


def make_item(worklist: Worklist, message: Delivery) -> None:
    """Make the item of a message, in the transaction that acknowledges the message.

    Do nothing if the message already has an item.
    Raises ``Reject``, which dead-letters the message, if it cannot become an item.
    """
    using = message.status.acknowledger.state.using
    if _has_item(worklist, message, using):
        return
    try:
        item, due_ms, attributes, is_automated = _item(worklist, message, using)
        now = now_ms(using)
        item.created_at = moment(now)
        item.due_at = None if due_ms is None else moment(now + due_ms)
        item.save(using=using, force_insert=True)
        WorkAttribute.objects.using(using).bulk_create(
            WorkAttribute(item=item, worklist=item.worklist, name=name, value=value)
            for name, value in attributes.items()
        )
    except Error as error:
        if is_value_refused(error):
            raise _rejected(worklist, error) from error
        raise
    except Exception as error:
        raise _rejected(worklist, error) from error
    steps.record(item, "created", None, "", "")
    if is_automated:
        steps.send(item, steps.WORK)
    steps.send_due(item)


def _rejected(worklist: Worklist, error: Exception) -> Reject:
    name = type(error).__name__
    return Reject(f"the message cannot become an item of worklist {worklist.name!r}: {name}: {error}")


def _has_item(worklist: Worklist, message: Delivery, using: str) -> bool:
    """Return whether the message has an item: by its offset, or after a redrive by its id and key.

    An item with this id does not count if it is older than the message, or if its own message was in another partition
    (of another priority).
    """
    items = WorkItem.objects.using(using).filter(worklist=worklist.name)
    if items.filter(message_offset=message.offset).exists():
        return True
    same = items.filter(
        message_id=message.id, message_key=message.key or "", created_at__gte=message.published_at
    )
    if not (offsets := list(same.values_list("message_offset", flat=True))):
        return False
    log, partition = LogRow.objects.using(using), message.status.receipt.partition
    # If an item's message is deleted, the item counts only if this message is a copy, as after a redrive.
    is_copy = log.filter(offset=message.offset, original_id__isnull=False).exists()
    there = dict(log.filter(offset__in=offsets).values_list("offset", "partition_key"))
    return any(there.get(offset, partition if is_copy else None) == partition for offset in offsets)


def _item(
    worklist: Worklist, message: Message, using: str
) -> tuple[WorkItem, int | None, dict[str, str], bool]:
    """Return (unsaved item, milliseconds until it is due, attributes, a handler finishes it).

    Raises what the worklist's methods raise, and ``TypeError`` or ``ValueError`` for values that do not fit.
    """
    if isinstance(message.payload, bytes):
        raise TypeError("its payload is bytes, and a work item needs JSON")
    check_whole_numbers("the payload of a work item", message.payload)
    item = WorkItem(
        worklist=worklist.name,
        kind=worklist.kind(message)[:191],
        title=worklist.title(message)[:200],
        message_id=message.id,
        message_key=message.key or "",
        message_kind=message.kind,
        message_offset=message.offset,
        payload=message.payload,
        headers=dict(message.headers),
    )
    if (linked := worklist.link(message)) is not None:
        _link(item, linked, using)
    attributes = checked_attributes(worklist, worklist.attributes(message))
    due: timedelta | None = worklist.due(message)
    is_automated = bool(worklist.automate(message))
    item.state = states.AUTOMATED if is_automated else states.UNASSIGNED
    return item, None if due is None else to_ms("due", due), attributes, is_automated


def _link(item: WorkItem, linked: Any, using: str) -> None:
    if not isinstance(linked, models.Model) or linked.pk is None:
        raise TypeError(f"link must return a saved model instance, not {linked!r}")
    if isinstance(linked.pk, tuple) or linked._state.db not in (None, using):
        raise TypeError(f"link must return an object of database {using!r} with a simple key, not {linked!r}")
    item.linked_type = ContentType.objects.db_manager(using).get_for_model(linked)
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


def message_of(item: WorkItem) -> Inspected:
    """Return the message of an item in the form that a mask takes."""
    errors = (FailedAttempt(item.created_at, 0, "", item.error),) if item.error else ()
    return Inspected(
        offset=item.message_offset, id=item.message_id, topic=item.rules.options.source, key=item.message_key or None,
        kind=item.message_kind, payload=item.payload, published_at=item.created_at, available_at=item.created_at,
        headers=item.headers, size=len(compact(item.payload)), errors=errors,
    )  # fmt: skip
