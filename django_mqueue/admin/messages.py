"""The log's page: messages and dead letters, newest first."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import BinaryField, F, Func, QuerySet
from django.db.models.functions import Length
from django.http import HttpRequest

from ..models import Message
from ..store import search
from . import payloads
from .display import EMPTY, block, cell, first_line, key_column, moment_column, name
from .lookups import KEY, TOPIC, Lookup
from .pages import ReadOnlyAdmin
from .paginator import LIMIT

PARTITIONS_SEARCHED = 20_000
"""For an id without its key: an id is unique in its partition, so each is looked up in all of them."""

DEAD_LETTER = "Dead letter"
DEAD_LETTER_FIELDS = ["original_topic", "original_id", "failed_group", "failed", "failure_count", "error"]


def _beginning(length: int) -> Func:
    return Func(F("payload"), length, function="LEFT", output_field=BinaryField())


class MessageAdmin(ReadOnlyAdmin):
    """Fetches of payloads only what is shown: a hundred of them may be a hundred megabytes."""

    order = ("-offset",)
    lookups = (
        TOPIC,
        KEY,
        Lookup("message_id", "Id", needs=("topic",)),
        Lookup("offset__lte", "Up to offset", number=True),
        Lookup("failed_group", "Given up by", needs=("topic", "original_id")),
        Lookup("original_id", "Original id", needs=("topic", "failed_group")),
    )
    list_display = ["offset", "topic", "key", "id_cell", "kind", "payload_head", "published_short", "failure"]
    fieldsets = [
        (None, {"fields": ["offset", "topic", "key", "message_id", "for_group", "kind"]}),
        ("Content", {"fields": ["headers", "payload_body"]}),
        ("Times", {"fields": ["created", "available", "published"]}),
        (DEAD_LETTER, {"fields": [*DEAD_LETTER_FIELDS]}),
    ]
    readonly_fields = [
        "key", "for_group", "kind", "headers", "payload_body", "created", "available", "published", "failed", "error",
    ]  # fmt: skip

    key = key_column
    created = moment_column("created_at", "created")
    available = moment_column("available_at", "available")
    published = moment_column("published_at", "published")
    published_short = moment_column("published_at", "published", short=True)
    failed = moment_column("failed_at", "failed")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Message]:
        queryset: QuerySet[Message] = super().get_queryset(request)
        return queryset.defer("payload").annotate(
            head=_beginning(payloads.HEAD_BYTES), payload_bytes=Length("payload")
        )

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Message | None:
        """The message with as much of its payload as its page shows."""
        message: Message | None = super().get_object(request, object_id, from_field)
        if message is not None:
            rows = self.get_queryset(request).filter(pk=message.pk)
            for body in rows.values_list(_beginning(payloads.BODY_BYTES), flat=True):
                vars(message)["body"] = body
        return message

    def get_fieldsets(self, request: HttpRequest, obj: Message | None = None) -> Any:
        """What only dead letters have is shown of those only."""
        sections = super().get_fieldsets(request, obj)
        if obj is not None and obj.failed_group:
            return sections
        return [section for section in sections if section[0] != DEAD_LETTER]

    def narrow(self, queryset: QuerySet[Message], given: dict[str, str]) -> QuerySet[Message]:
        if "topic" not in given or "original_id" in given:
            return super().narrow(queryset, given)
        topic, partition = given["topic"], given.get("partition_key")
        if "message_id" not in given:
            up_to = int(given["offset__lte"]) if "offset__lte" in given else None
            return queryset.filter(pk__in=search.newest(queryset.db, topic, partition, up_to, LIMIT + 1))
        if partition is None:
            found = search.by_id(queryset.db, topic, given["message_id"], PARTITIONS_SEARCHED)
            queryset = queryset.filter(pk__in=found)
        return super().narrow(queryset, given)

    @admin.display(description="id")
    def id_cell(self, message: Message) -> str:
        return name(message.message_id)

    @admin.display(description="kind")
    def kind(self, message: Message) -> str:
        return name(str(payloads.part(message.metadata, "kind") or ""))

    @admin.display(description="for group")
    def for_group(self, message: Message) -> str:
        return message.consumer_group or "all groups"

    @admin.display(description="headers")
    def headers(self, message: Message) -> str:
        return payloads.document(payloads.part(message.metadata, "headers"))

    @admin.display(description="payload")
    def payload_head(self, message: Any) -> str:
        return payloads.head(message.head, message.payload_bytes, payloads.encoding(message.metadata))

    @admin.display(description="payload")
    def payload_body(self, message: Any) -> str:
        return payloads.whole(message.body, message.payload_bytes, payloads.encoding(message.metadata))

    @admin.display(description="failure")
    def failure(self, message: Message) -> str:
        if not message.failed_group:
            return EMPTY
        return cell(f"{message.failed_group}: {first_line(message.last_error or '')}")

    @admin.display(description="last error")
    def error(self, message: Message) -> str:
        return block(message.last_error) if message.last_error else EMPTY
