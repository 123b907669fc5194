"""Forms and fields that operations and pages share: names, partitions, offsets, dates and times."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils import timezone

from ...policy import names
from ...service.registration import topic_limit

OFFSET_MAX = (1 << 63) - 1


def parse_offset(text: str) -> int | None:
    """Return the offset or primary key that a URL holds, or None if the text is no such number."""
    found = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None
    return found if found is not None and found <= OFFSET_MAX else None


class CheckedField(forms.CharField):
    """A text that ``check`` accepts. Its ``TypeError`` or ``ValueError`` is the field's error."""

    def check(self, text: str) -> str:
        raise NotImplementedError

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(strip=False, **kwargs)

    def clean(self, value: Any) -> str:
        text: str = super().clean(value)
        try:
            return self.check(text) if text else text
        except (TypeError, ValueError) as problem:
            raise ValidationError(str(problem)) from None


class NameField(CheckedField):
    """A name that the queue accepts. ``argument``: the name of the argument in the error's text."""

    def __init__(self, argument: str, limit: int, **kwargs: Any) -> None:
        self.argument, self.limit = argument, limit
        super().__init__(**kwargs)

    def check(self, text: str) -> str:
        return names.check_name(self.argument, text, self.limit)


class PartitionField(CheckedField):
    """A key, or a partition of keyless messages, whose name begins with a space."""

    def check(self, text: str) -> str:
        return names.check_partition(text)


class Moment(forms.DateTimeField):
    """An aware date and time of the current time zone, to the second, also in projects without ``USE_TZ``."""

    def __init__(self, **kwargs: Any) -> None:
        widget = forms.DateTimeInput({"type": "datetime-local", "step": "1"}, format="%Y-%m-%dT%H:%M:%S")
        super().__init__(widget=widget, **kwargs)

    def prepare_value(self, value: Any) -> Any:
        """Keep the time zone in hidden fields."""
        return value.isoformat(timespec="seconds") if isinstance(value, datetime) else value

    def to_python(self, value: Any) -> datetime | None:
        """Refuse a time that a clock change skips or repeats, as Django does with ``USE_TZ``."""
        found = super().to_python(value)
        if found is None or timezone.is_aware(found):
            return found
        zone = timezone.get_current_timezone()
        if zone.utcoffset(found.replace(fold=1 - found.fold)) != zone.utcoffset(found):
            raise ValidationError(
                f"This time does not exist, or occurs twice, in the time zone {zone}. Give another time."
            )
        return found.replace(tzinfo=zone)


class TopicForm(forms.Form):
    """The topic that a link or an earlier form names."""

    topic = NameField("topic", topic_limit(), widget=forms.HiddenInput)

    def clean_topic(self) -> str:
        """Refuse the topics of scheduled messages and replies: no operation applies to them."""
        try:
            return names.check_topic(self.cleaned_data["topic"], topic_limit())
        except ValueError as problem:
            raise ValidationError(str(problem)) from None


class GroupForm(TopicForm):
    group = NameField("group", names.GROUP_MAX, widget=forms.HiddenInput)
