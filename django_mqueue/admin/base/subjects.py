"""The topics and groups that operations change: forms for their names, and subjects for the log."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from ...models import ConsumerGroup, Topic
from ...policy import names
from ...service.registration import topic_limit
from . import row_ids
from .audit import Subject


class NameField(forms.CharField):
    """A name that the queue accepts. ``argument``: the name of the argument in the error's text."""

    def __init__(self, argument: str, limit: int, **kwargs: Any) -> None:
        self.argument, self.limit = argument, limit
        super().__init__(strip=False, **kwargs)

    def clean(self, value: Any) -> str:
        text = super().clean(value)
        try:
            return names.check_name(self.argument, text, self.limit) if text else text
        except (TypeError, ValueError) as problem:
            raise ValidationError(str(problem)) from None


class OfTopic(forms.Form):
    """The topic that a link or an earlier form names."""

    topic = NameField("topic", topic_limit(), widget=forms.HiddenInput)

    def clean_topic(self) -> str:
        """Refuse the topics of scheduled messages and replies: no operation applies to them."""
        try:
            return names.check_topic(self.cleaned_data["topic"], topic_limit())
        except ValueError as problem:
            raise ValidationError(str(problem)) from None


class OfGroup(OfTopic):
    group = NameField("group", names.GROUP_MAX, widget=forms.HiddenInput)


def topic(name: str) -> Subject:
    return Subject(Topic, row_ids.encode((name,)), name)


def group(topic: str, group: str) -> Subject:
    return Subject(ConsumerGroup, row_ids.encode((topic, group)), f"{group} on {topic}")
