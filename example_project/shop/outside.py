"""The simulated world outside: a bank that is slow or declines, a printer that jams, and a busy mail server."""

from __future__ import annotations

from decimal import Decimal

from .models import BankEntry, Mail, Order

GOOD, DECLINED, SLOW, SILENT = "good card", "declined card", "slow card", "silent card"
SLOW_FOR = 2
"""Number of calls for a slow card that get no answer."""

STICKY = "honey"


class CardDeclined(Exception):
    """The bank declines the card, and will decline it again."""


class BankTimeout(Exception):
    """The bank does not answer. Another call may succeed."""


class MailServerBusy(Exception):
    """The mail server takes no mail now."""


class PaperJam(Exception):
    """The printer has jammed, and nothing was printed."""


def charge(reference: str, card: str, amount: Decimal) -> None:
    """Charge the card, once for each ``reference``. Raises ``CardDeclined`` or ``BankTimeout``."""
    calls = BankEntry.objects.filter(reference=reference)
    if calls.filter(answer=BankEntry.Answer.ACCEPTED).exists():
        return
    silent = card == SILENT or (card == SLOW and calls.count() < SLOW_FOR)
    answer = BankEntry.Answer.NONE if silent else BankEntry.Answer.ACCEPTED
    if card == DECLINED:
        answer = BankEntry.Answer.DECLINED
    BankEntry.objects.create(reference=reference, card=card, amount=amount, answer=answer)
    if answer == BankEntry.Answer.NONE:
        raise BankTimeout("the bank did not answer")
    if answer == BankEntry.Answer.DECLINED:
        raise CardDeclined(f"the bank declines the {card}")


def print_invoice(order: Order, attempt: int) -> None:
    """Print an invoice. Raises ``PaperJam`` at the first attempt for an order of honey."""
    if order.article == STICKY and attempt == 1:
        raise PaperJam("honey sticks")


def send(mail: Mail, attempt: int) -> None:
    """Send a mail. Raises ``MailServerBusy`` at the first attempt for a reminder."""
    if mail.kind == Mail.Kind.REMINDER and attempt == 1:
        raise MailServerBusy("try again later")
