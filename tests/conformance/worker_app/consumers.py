"""Register the handlers of one worker, which ``CONFORMANCE_HANDLERS`` lists as JSON."""

from __future__ import annotations

import json
import os

from django_mqueue import ExponentialBackoff, Message, Postpone, Reject, Retry, consumer, publish
from tests.conformance.handling import Asked, handle


def handle_as_asked(message: Message) -> None:
    try:
        handle(message, publish)
    except Asked as asked:
        if asked.verb == "reject":
            raise Reject(asked.text) from asked
        if asked.verb == "postpone":
            raise Postpone(asked.delay) from asked
        raise Retry(asked.text, delay=asked.delay) from asked


for _wanted in json.loads(os.environ.get("CONFORMANCE_HANDLERS", "[]")):
    if isinstance(_wanted["retry"], float):
        _wanted["retry"] = ExponentialBackoff(
            first=_wanted["retry"], factor=1, max=_wanted["retry"], jitter=0
        )
    consumer(**_wanted)(handle_as_asked)
