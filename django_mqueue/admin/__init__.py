"""Pages of Django's admin: the queue as it stands, what operators do with it, and the five tables, which are only read.

Django's autodiscovery finds them for the default site; ``register`` puts them on a site of your own.
"""

from __future__ import annotations

from django.contrib import admin
from django.contrib.admin import AdminSite

from ..models import (
    ConsumerGroup,
    DeadLetter,
    DeliveryState,
    Message,
    Offset,
    PartitionLease,
    SubscriberHeartbeat,
    Topic,
)
from .dead_letters import DeadLetterAdmin
from .delivery_state import DeliveryStateAdmin
from .groups import ConsumerGroupAdmin
from .heartbeats import SubscriberHeartbeatAdmin
from .leases import PartitionLeaseAdmin
from .messages import MessageAdmin
from .offsets import OffsetAdmin
from .topics import TopicAdmin


def register(site: AdminSite) -> None:
    """Add the pages of topics, groups, dead letters and all five tables to a site."""
    site.register(Topic, TopicAdmin)
    site.register(ConsumerGroup, ConsumerGroupAdmin)
    site.register(DeadLetter, DeadLetterAdmin)
    site.register(Message, MessageAdmin)
    site.register(PartitionLease, PartitionLeaseAdmin)
    site.register(Offset, OffsetAdmin)
    site.register(SubscriberHeartbeat, SubscriberHeartbeatAdmin)
    # ``register`` refuses every model with a composite primary key, because a ModelAdmin of Django's own cannot
    # put one into a URL. This one can, so it goes where ``register`` would have put it.
    site._registry[DeliveryState] = DeliveryStateAdmin(DeliveryState, site)


register(admin.site)
