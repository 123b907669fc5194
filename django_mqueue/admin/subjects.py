"""What operations are done to: topics and groups, by their names."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from ..models import ConsumerGroup, Topic
from ..policy import names
from ..service.registration import topic_limit
from . import row_ids
from .audit import Subject


class NameField(forms.CharField):
    """A name as the queue takes it: ``argument`` says which, in the error's text."""

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
    """What is said of a topic by a link or a form before."""

    topic = NameField("topic", topic_limit(), widget=forms.HiddenInput)

    def clean_topic(self) -> str:
        """What a topic's scheduled messages and replies are kept in is no topic that anything is done to."""
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
