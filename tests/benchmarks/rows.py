"""SQL statements that fill the tables (see ``world``). The content of a row depends only on its number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.benchmarks.world import Group, Size

DAY_MS = 86_400_000
ID = "01977420-c2f4-7000-8000-"
"""Prefix of an id; the row's number in twelve digits follows.

An id is as long as a UUID, and ids rise as UUIDs of version 7 do.
"""
ARCHIVE = 6_000
"""All messages of the topic ``archive`` are among this many first rows of the log."""
FAR = 1 << 62
LETTER_OF = 49
"""Number of rows between a dead letter's original and the dead letter."""

FRAME = '  File "/srv/app/shop/billing/steps.py", line 217, in charge\\n    return gateway.post(order, timeout=5)\\n'
TRACEBACK = f"'\\n\\nTraceback (most recent call last):\\n', REPEAT('{FRAME}', 24)"

ERRORS = (
    "ConnectionError: payment gateway refused order {n}",
    "TimeoutError: no answer within 5 s",
    "ValueError: order {n} has no lines",
    "KeyError: ''customer''",
    "shop.errors.OutOfStock: item {h} is gone",
    "IntegrityError: (1062, \"Duplicate entry ''{n}'' for key ''invoice''\")",
    "UnicodeDecodeError: ''utf-8'' codec can''t decode byte 0xff",
    "PermissionError: token of customer {h} has expired",
    "decimal.InvalidOperation: [<class ''decimal.ConversionSyntax''>]",
    "AttributeError: ''NoneType'' object has no attribute ''total''",
    "RecursionError: maximum recursion depth exceeded",
    "The handler ran longer than max_runtime (30 s)",
)


def error(number: str, hash: str) -> str:
    """Return SQL for an error with its traceback. The first classes are more frequent."""
    texts = ", ".join(
        "CONCAT('" + text.replace("{n}", f"', {number}, '").replace("{h}", f"', {hash} MOD 900, '") + "')"
        for text in ERRORS
    )
    which = f"1 + FLOOR({len(ERRORS)} * POW({hash} MOD 9973 / 9973, 2))"
    return f"CONCAT(ELT({which}, {texts}), {TRACEBACK})"


def errors_json(at: str, number: str, hash: str) -> str:
    """Return SQL for the errors of two failed attempts, as delivery state keeps them."""
    one = f"JSON_OBJECT('at', {at}, 'attempt', {{}}, 'by', 'billing-3', 'error', {error(number, hash)})"
    return f"JSON_ARRAY({one.format(1)}, {one.format(2)})"


def messages(size: Size, now: int, base: int, count: int, numbers: str) -> str:
    """Return SQL that inserts ``count`` rows from ``base`` on. All rows are published over a day, the last one now."""
    n, step = "x.n", DAY_MS / size.messages
    at = f"({now} - FLOOR(({size.messages - 1} - {n}) * {step!r}))"
    letter, later = f"{n} MOD 100 = 99", f"{n} MOD 500 = 98"
    # Of ten numbers that end in 9, the last one is a dead letter.
    which = f"({n} DIV 10 - {n} DIV 100) MOD {size.topics}"
    small = f"IF({n} < {ARCHIVE}, 'archive', CONCAT('small-', LPAD({which}, 4, '0')))"
    once = f"IF({n} DIV 10 MOD 2, 'imports', 'visits')"
    topic = (
        f"CASE WHEN {letter} THEN 'orders_dlq' WHEN {later} THEN 'orders_scheduled' ELSE ELT(1 + {n} MOD 10,"
        f" 'orders', 'orders', 'orders', 'orders', 'orders', 'orders', 'events', {once}, 'mail', {small}) END"
    )
    customer = f"CONCAT('customer-', LPAD(FLOOR({size.partitions} * POW(x.h / 4294967296, 2)), 5, '0'))"
    partition = (
        f"CASE WHEN {letter} OR {later} OR {n} MOD 10 < 6 THEN {customer} ELSE ELT({n} MOD 10 - 5,"
        f" CONCAT(' ', LPAD(x.h MOD 16, 4, '0')), IF({n} DIV 10 MOD 2, 'nightly', CONCAT('visitor-', x.h)),"
        " CONCAT('list-', x.h MOD 200), CONCAT('k', x.h MOD 3)) END"
    )
    id = f"CONCAT('{ID}', LPAD({n}, 12, '0'))"
    late = 0.38 * size.messages
    group = f"IF({n} > {late:.0f}, 'billing', ELT(1 + x.h MOD 4, 'billing', 'billing', 'reports', 'audit'))"
    original = f"({n} - {LETTER_OF} + 1)"
    told = f"IF({letter}, {n} - {LETTER_OF}, {n})"
    body = (
        f'CONCAT(\'{{"order": \', {told}, \', "customer": {{"id": \', x.h MOD 5000, \', "country": "\','
        " ELT(1 + x.h MOD 5, 'NO', 'DE', 'FR', 'IN', 'BR'), '\"}, \"total\": ', x.h MOD 100000, ', \"note\": \"',"
        " REPEAT('so it goes ', 1 + x.h MOD 15), '\"}')"
    )
    kind = "ELT(1 + x.h MOD 4, 'order.placed', 'order.paid', 'order.sent', 'order.cancelled')"
    plain = f'CONCAT(\'{{"kind": "\', {kind}, \'", "headers": {{"source": "web"}}, "encoding": "json"\')'
    failed = f'\', "failed": {{"attempts": 5, "errors": \', {errors_json(at, original, "x.h")}, \'}}\''
    metadata = f"CONCAT({plain}, IF({letter}, CONCAT({failed}), ''), '}}')"

    def of_letter(value: str) -> str:
        return f"IF({letter}, {value}, NULL)"

    return (
        "INSERT INTO queue_messages (`offset`, topic, partition_key, id, consumer_group, payload, metadata,"
        " available_at, created_at, published_at, failed_at, failure_count, last_error, original_topic, failed_group,"
        f" original_id) SELECT {n} + 1, {topic}, {partition},"
        f" IF({letter}, CONCAT({original}, ':', {group}), {id}), '', {body}, {metadata},"
        f" IF({later}, {now} + x.h MOD 2592000000, {at}), {at}, {at}, {of_letter(at)}, {of_letter('5')},"
        f" {of_letter(error(original, 'x.h'))}, {of_letter(repr('orders'))}, {of_letter(group)},"
        f" {of_letter(f'''CONCAT('{ID}', LPAD({n} - {LETTER_OF}, 12, '0'))''')}"
        # A dead letter has the key of its original, so its hash is computed from the original's number.
        f" FROM (SELECT {base} + n AS n,"
        f" CRC32(IF(({base} + n) MOD 100 = 99, {base} + n - {LETTER_OF}, {base} + n)) AS h"
        f" FROM {numbers} WHERE n < {count}) x ORDER BY x.n"
    )


STATE = (
    "INSERT INTO queue_delivery_state (consumer_group, topic, partition_key, message_offset, acked, in_flight,"
    " invisible_until, retry_count, failure_count, delivery_token, handed, alone, delivered_to, delivered_at, acked_at,"
    " errors)"
)


def state(group: Group, now: int, first: int, last: int, newest: int) -> str:
    """Return SQL that inserts a group's delivery state: some rows wait for a retry, some of the last are in flight."""
    waits = "x.h MOD 1500 = 0"
    flies = f"x.`offset` > {newest - max(newest // 8000, 8)} AND x.h MOD 4 = 0"
    owner = f"CONCAT('{group.name}-', x.h MOD {max(group.owners, 1)})"
    since = (
        f"LEAST(x.published_at + 400 + x.h MOD 3000, {now})"
        if group.delivered == 1.0
        else f"{now} - 60000 - ({newest} - x.`offset`)"
    )
    return (
        f"{STATE} SELECT '{group.name}', x.topic, x.partition_key, x.`offset`, NOT ({waits} OR {flies}),"
        f" {flies} AND NOT ({waits}),"
        f" CASE WHEN {waits} THEN {now} - 60000 + x.h MOD 600000 WHEN {flies} THEN {now} + x.h MOD 60000 ELSE"
        f" {since} + 60000 END, IF({waits}, 2, 0), IF({waits}, 2, 0), x.h + 1, 1, 0, {owner}, {since},"
        f" IF({waits} OR {flies}, NULL, LEAST({since} + 20 + x.h MOD 200, {now})),"
        f" IF({waits}, {errors_json('x.published_at', 'x.`offset`', 'x.h')}, NULL)"
        " FROM (SELECT `offset`, topic, partition_key, published_at, CRC32(`offset`) AS h FROM queue_messages"
        f" FORCE INDEX (queue_messages_tail) WHERE topic = '{group.topic}' AND `offset` >= {first}"
        f" AND `offset` <= {last}) x"
    )


OFFSETS = (
    "INSERT INTO queue_offsets (consumer_group, topic, partition_key, offset_acked, scan_offset, paused,"
    " updated_at)"
)
LEASES = (
    "INSERT INTO queue_partition_leases (consumer_group, topic, partition_key, leased_by, holder, leased_at,"
    " lease_renewed_at)"
)
HEARTBEATS = (
    "INSERT INTO queue_subscriber_heartbeats (consumer_group, topic, subscriber_name, incarnation, heartbeat_at,"
    " deregistered_at)"
)


def holder(name: str) -> str:
    """Return SQL for a subscriber's incarnation."""
    return f"LEFT(SHA2({name}, 256), 32)"


def places(group: Group, now: int, kept: int, scanned: int) -> Iterator[str]:
    """Yield SQL that inserts registration, positions, heartbeats, leases and the topic's own row.

    Leases exist for partitions with messages since ``kept``.
    """
    name, topic = f"'{group.name}'", f"'{group.topic}'"
    partitions = (
        "(SELECT topic, partition_key FROM queue_messages FORCE INDEX (queue_messages_partition)"
        f" WHERE topic = {topic} GROUP BY topic, partition_key) p"
    )
    yield (
        f"{OFFSETS} VALUES ('', {topic}, '', {scanned}, 0, 0, {now - 3000})"
        f" ON DUPLICATE KEY UPDATE offset_acked = GREATEST(offset_acked, {scanned})"
    )
    yield f"{OFFSETS} VALUES ({name}, {topic}, '', 0, 0, {int(group.paused)}, {now - DAY_MS})"
    first_open = (
        f"(SELECT MIN(s.message_offset) FROM queue_delivery_state s FORCE INDEX (queue_delivery_state_due) WHERE"
        f" s.consumer_group = {name} AND s.topic = {topic} AND s.partition_key = p.partition_key AND s.acked = 0)"
    )
    one = f"FROM queue_messages m FORCE INDEX (queue_messages_partition) WHERE m.topic = {topic}"
    next_one = (
        f"(SELECT MIN(m.`offset`) {one} AND m.partition_key = p.partition_key AND m.`offset` > {scanned})"
    )
    last_one = (
        f"(SELECT MAX(m.`offset`) {one} AND m.partition_key = p.partition_key AND m.`offset` <= {scanned})"
    )
    # With workers, a watermark is below the first open message.
    # Without a first open message, a paused group has its watermark at the last acknowledged one.
    acked = (
        f"COALESCE({first_open} - 1, {last_one}, 0)"
        if group.paused
        else f"LEAST(COALESCE({first_open}, {FAR}), COALESCE({next_one}, {FAR}), {scanned + 1}) - 1"
    )
    yield (
        f"{OFFSETS} SELECT {name}, {topic}, p.partition_key, {acked}, GREATEST({acked}, COALESCE({last_one}, 0)), 0,"
        f" {now} - CRC32(p.partition_key) MOD 60000 FROM {partitions}"
    )
    owner = f"CONCAT('{group.name}-', CRC32(p.partition_key) MOD {group.owners})" if group.owners else "''"
    busy = partitions.replace(") p", f" HAVING MAX(`offset`) > {kept}) p")
    yield (
        f"{LEASES} SELECT {name}, {topic}, p.partition_key, {owner}, {holder(owner) if group.owners else owner},"
        f" {now} - 7200000, {now} - CRC32(p.partition_key) MOD 8000 FROM {busy}"
    )
    gone = [
        f"({name}, {topic}, '{group.name}-old-{n}', {holder(n)}, {now - 9_000_000}, {now - 9_000_000})"
        for n in "12"
    ]
    names = [f"'{group.name}-{n}'" for n in range(group.owners)]
    alive = [f"({name}, {topic}, {one}, {holder(one)}, {now - 100 * n}, NULL)" for n, one in enumerate(names)]
    yield f"{HEARTBEATS} VALUES {', '.join(gone + alive)}"


def small_topics(size: Size, now: int, group: str, scanned: int) -> Iterator[str]:
    """Yield SQL that inserts one group for each small topic.

    Each group has acknowledged nearly all messages. One process serves all groups.
    """
    found = (
        "(SELECT topic, partition_key FROM queue_messages FORCE INDEX (queue_messages_partition)"
        " WHERE topic >= 'small-' AND topic < 'small.' GROUP BY topic, partition_key) p"
    )
    topics = f"(SELECT DISTINCT topic FROM {found}) t"
    yield f"{OFFSETS} SELECT '', t.topic, '', {scanned}, 0, 0, {now - 3000} FROM {topics}"
    yield f"{OFFSETS} SELECT '{group}', t.topic, '', 0, 0, 0, {now - DAY_MS} FROM {topics}"
    yield f"{OFFSETS} SELECT '{group}', p.topic, p.partition_key, {scanned}, {scanned}, 0, {now - 5000} FROM {found}"
    yield (
        f"{LEASES} SELECT '{group}', p.topic, p.partition_key, 'all-1', {holder('p.topic')}, {now - 7_200_000},"
        f" {now - 900} FROM {found}"
    )
    yield f"{HEARTBEATS} SELECT '{group}', t.topic, 'all-1', {holder('t.topic')}, {now - 900}, NULL FROM {topics}"
    yield (
        f"{STATE} SELECT '{group}', m.topic, m.partition_key, m.`offset`, 1, 0, m.published_at, 0, 0, m.`offset`, 1, 0,"
        " 'all-1', m.published_at + 300, m.published_at + 350, NULL FROM queue_messages m FORCE INDEX (PRIMARY)"
        f" WHERE m.`offset` > {int(0.98 * size.messages)} AND m.`offset` <= {scanned}"
        " AND m.topic >= 'small-' AND m.topic < 'small.'"
    )
