"""Pages of Django's admin to look at the five tables with. They only read.

Django's autodiscovery finds them for the default site; ``register`` puts them on a site of your own.
"""

from __future__ import annotations

from django.contrib import admin
from django.contrib.admin import AdminSite

from ..models import DeliveryState, Message, Offset, PartitionLease, SubscriberHeartbeat
from .delivery_state import DeliveryStateAdmin
from .heartbeats import SubscriberHeartbeatAdmin
from .leases import PartitionLeaseAdmin
from .messages import MessageAdmin
from .offsets import OffsetAdmin


def register(site: AdminSite) -> None:
    """Add the pages of all five tables to a site."""
    site.register(Message, MessageAdmin)
    site.register(PartitionLease, PartitionLeaseAdmin)
    site.register(Offset, OffsetAdmin)
    site.register(SubscriberHeartbeat, SubscriberHeartbeatAdmin)
    # ``register`` refuses every model with a composite primary key, because a ModelAdmin of Django's own cannot
    # put one into a URL. This one can, so it goes where ``register`` would have put it.
    site._registry[DeliveryState] = DeliveryStateAdmin(DeliveryState, site)


register(admin.site)
