"""The open shop: customers order one after the other, and some of their cards do not work."""

from __future__ import annotations

import random

from .consumers import PRICE_LIST
from .models import Order
from .orders import ask_refund, place_order
from .outside import DECLINED, GOOD, SILENT, SLOW

CUSTOMERS = ("ada", "bob", "cy", "dora", "eve", "fay", "gus", "hal", "ivy", "joe")
CARDS = (GOOD, GOOD, GOOD, GOOD, SLOW, "", "", DECLINED, SILENT)
"""Two of these nine end as dead letters."""
SENT_BACK = 0.2
"""The share of orders that customers send back: a handler pays small refunds, and large ones wait for people."""


def place_random_order(chance: random.Random) -> Order:
    article = chance.choice(sorted(PRICE_LIST))
    order = place_order(chance.choice(CUSTOMERS), article, chance.randint(1, 5), chance.choice(CARDS))
    if chance.random() < SENT_BACK:
        ask_refund(order)
    return order
