"""The server's tables: migrations in both directions, engine, collations, indexes, and use through the ORM."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, connections, models

from django_mqueue import publish, subscribe, unsubscribe
from django_mqueue.exceptions import NotMigrated
from django_mqueue.models import DeliveryState, Message, Offset, PartitionLease, SubscriberHeartbeat
from django_mqueue.protocol.settling import Settler
from django_mqueue.store import gates
from tests.support.running import registered, run
from tests.support.transactions import Background, HeldTransaction, wait_for_lock_wait

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])

MODELS: list[type[models.Model]] = [Message, DeliveryState, PartitionLease, Offset, SubscriberHeartbeat]
TABLES = {
    "queue_messages",
    "queue_delivery_state",
    "queue_partition_leases",
    "queue_offsets",
    "queue_subscriber_heartbeats",
}
EIGHT_GATES = "0003_operators_rights"
GATE = {name for gate in range(gates.GATES) for name in gates.slots(gate)}

PRIMARY, UNIQUE, PLAIN = "primary", "unique", "plain"
INDEXES: dict[str, dict[str, tuple[str, list[str]]]] = {
    "queue_messages": {
        "PRIMARY": (PRIMARY, ["offset"]),
        "queue_messages_dedupe": (UNIQUE, ["topic", "partition_key", "id", "consumer_group"]),
        "queue_messages_partition": (PLAIN, ["topic", "partition_key", "offset", "consumer_group"]),
        "queue_messages_tail": (PLAIN, ["topic", "offset", "partition_key", "consumer_group"]),
        "queue_messages_due": (PLAIN, ["topic", "failed_group", "original_id", "available_at"]),
    },
    "queue_delivery_state": {
        "PRIMARY": (PRIMARY, ["consumer_group", "topic", "partition_key", "message_offset"]),
        "queue_delivery_state_due": (
            PLAIN,
            ["consumer_group", "topic", "partition_key", "acked", "in_flight", "invisible_until"],
        ),
    },
    "queue_partition_leases": {
        "PRIMARY": (PRIMARY, ["id"]),
        "queue_leases_partition": (UNIQUE, ["consumer_group", "topic", "partition_key"]),
        "queue_leases_holder": (PLAIN, ["consumer_group", "topic", "holder", "partition_key"]),
        "queue_leases_renewed": (PLAIN, ["consumer_group", "topic", "lease_renewed_at", "holder"]),
    },
    "queue_offsets": {
        "PRIMARY": (PRIMARY, ["id"]),
        "queue_offsets_partition": (UNIQUE, ["consumer_group", "topic", "partition_key"]),
        "queue_offsets_groups": (PLAIN, ["topic", "partition_key", "consumer_group", "offset_acked"]),
    },
    "queue_subscriber_heartbeats": {
        "PRIMARY": (PRIMARY, ["id"]),
        "queue_heartbeats_subscriber": (UNIQUE, ["consumer_group", "topic", "subscriber_name"]),
    },
}


def rows(sql: str, *params: str, using: str = "default") -> list[tuple[Any, ...]]:
    with connections[using].cursor() as cursor:
        cursor.execute(sql, params)
        return list(cursor.fetchall())


def tables(using: str) -> set[str]:
    return {name for name in connections[using].introspection.table_names() if name.startswith("queue_")}


@pytest.fixture
def migrated_again() -> Iterator[None]:
    """Create the tables of the other database again after a test, for the next test."""
    yield
    call_command("migrate", "django_mqueue", database="other", verbosity=0)


@pytest.mark.usefixtures("migrated_again")
def test_migrate_goes_back_to_zero_and_forward_again() -> None:
    """Twice, the migrations remove all tables, and create them again with the rows of the gate."""
    for _ in range(2):
        publish("orders", 1, using="other")
        call_command("migrate", "django_mqueue", "zero", database="other", verbosity=0)
        assert tables("other") == set()
        for call in (subscribe, unsubscribe):
            with pytest.raises(NotMigrated, match="migrate"):
                call("orders", "g", using="other")
        call_command("migrate", "django_mqueue", database="other", verbosity=0)
        assert tables("other") == TABLES
        gate = Offset.objects.using("other").filter(consumer_group="", topic="")
        assert set(gate.values_list("partition_key", flat=True)) == GATE
        assert publish("orders", 1, using="other").created


def migrate(*name: str) -> None:
    call_command("migrate", "django_mqueue", *name, database="other", verbosity=0)


@pytest.mark.usefixtures("migrated_again")
def test_a_worker_on_tables_without_an_index_says_what_to_do() -> None:
    migrate("0009")
    with (
        registered("orders", print),
        pytest.raises(CommandError, match=r"run manage\.py migrate --database other"),
    ):
        run(database="other")


def gate_rows() -> set[str]:
    rows = Offset.objects.using("other").filter(consumer_group="", topic="")
    return set(rows.values_list("partition_key", flat=True))


def lock_as_before(slot: int) -> bool:
    """Lock a slot of the 8 gates as publishers did. Return false if its row is missing: their INSERT then fails."""
    return bool(
        rows(
            "SELECT 1 FROM queue_offsets FORCE INDEX (queue_offsets_partition) WHERE consumer_group = ''"
            " AND topic = '' AND partition_key = %s LOCK IN SHARE MODE",
            f"gate-00-slot-{slot:02d}",
            using="other",
        )
    )


@pytest.mark.usefixtures("migrated_again")
def test_the_rows_of_eight_gates_and_of_many_are_never_there_together() -> None:
    """Otherwise a publisher could lock rows of one kind while a worker reads rows of the other kind."""
    publish("orders", 1, using="other")
    settlers = [Settler("other", "orders") for _ in range(2)]
    for settler in settlers:
        migrate(EIGHT_GATES)
        assert gate_rows() == {f"gate-{gate:02d}-slot-{slot:02d}" for gate in range(8) for slot in range(64)}
        with pytest.raises(NotMigrated, match="migrate"):
            publish("orders", 2, using="other")
        with pytest.raises(NotMigrated, match="migrate"):
            subscribe("orders", "late", using="other")
        assert settler.advance() == 0
        assert settler.pending, "rows that are missing do not count as free"
        migrate()
        assert gate_rows() == GATE
        assert settler.advance() > 0
        assert publish("orders", 2, using="other").created
        Offset.objects.using("other").filter(topic="orders").delete()


@pytest.mark.usefixtures("migrated_again")
def test_the_gates_change_after_the_transactions_that_hold_a_slot() -> None:
    """P: holds slot 40. M (migrates): has deleted slot 7, waits for P. L: requests slot 7, waits for M. P: ends.
    M: ends. L: finds no row to lock."""
    migrate(EIGHT_GATES)
    with (
        HeldTransaction(lambda: lock_as_before(40), using="other") as publisher,
        Background(migrate, using="other") as migration,
    ):
        wait_for_lock_wait(migration)
        with Background(lambda: lock_as_before(7), using="other") as late:
            wait_for_lock_wait(late)
            assert publisher.commit()
            migration.result()
            assert not late.result()
    assert gate_rows() == GATE


def test_no_migration_is_missing() -> None:
    """The models and the migrations define the same tables."""
    call_command("makemigrations", "django_mqueue", check=True, dry_run=True, verbosity=0)


def test_names_change_without_sql() -> None:
    """The migration of names locks no table: all of its lines are comments."""
    sql = StringIO()
    call_command("sqlmigrate", "django_mqueue", "0005", stdout=sql, no_color=True)
    assert {line[:2] for line in sql.getvalue().splitlines()} == {"--"}


def test_the_models_are_the_five_tables() -> None:
    assert {model._meta.db_table for model in apps.get_app_config("django_mqueue").get_models()} == TABLES
    assert tables("default") == TABLES


def test_every_table_is_innodb() -> None:
    found = dict(
        rows(
            "SELECT table_name, engine FROM information_schema.tables"
            " WHERE table_schema = DATABASE() AND table_name LIKE 'queue\\_%%'"
        )
    )
    assert found == dict.fromkeys(TABLES, "InnoDB")


def test_every_text_compares_byte_by_byte_whatever_the_databases_default() -> None:
    """MySQL's JSON columns are excluded, because they have no collation to choose."""
    found = rows(
        "SELECT table_name, column_name, collation_name FROM information_schema.columns WHERE table_schema ="
        " DATABASE() AND table_name LIKE 'queue\\_%%' AND collation_name IS NOT NULL"
    )
    assert len(found) >= 24
    assert {table for table, _, _ in found} == TABLES
    assert [row for row in found if row[2] != "utf8mb4_bin"] == []


@pytest.mark.parametrize("table", sorted(TABLES))
def test_indexes_have_their_names_and_columns(table: str) -> None:
    """Each table has exactly the indexes that the statements name, with their columns in order."""
    with connection.cursor() as cursor:
        found = connection.introspection.get_constraints(cursor, table)
    indexes = {
        name: (PRIMARY if one["primary_key"] else UNIQUE if one["unique"] else PLAIN, one["columns"])
        for name, one in found.items()
        if one["index"] or one["unique"] or one["primary_key"]
    }
    assert indexes == INDEXES[table]


def test_delivery_state_is_clustered_by_its_natural_key() -> None:
    """The table has no surrogate key, because InnoDB stores the rows in the order of the primary key."""
    columns = [name for (name,) in rows(
        "SELECT column_name FROM information_schema.statistics WHERE table_schema = DATABASE()"
        " AND table_name = 'queue_delivery_state' AND index_name = 'PRIMARY' ORDER BY seq_in_index"
    )]  # fmt: skip
    assert columns == ["consumer_group", "topic", "partition_key", "message_offset"]


def test_offsets_are_never_handed_out_twice() -> None:
    """Deleting the newest message does not free its offset."""
    first = publish("orders", 1).offset
    Message.objects.all().delete()
    assert publish("orders", 1).offset > first


def test_a_row_without_a_topic_is_refused() -> None:
    """A constraint refuses the empty topic, which an INSERT can get if its gate row is missing."""
    with pytest.raises(IntegrityError):
        Message.objects.create(
            topic="", partition_key="k", message_id="m", payload=b"", metadata={}, available_at=0, created_at=0,
            published_at=0,
        )  # fmt: skip


def message(**changed: Any) -> Message:
    values: dict[str, Any] = {
        "topic": "orders", "partition_key": "k", "message_id": "mine", "consumer_group": "", "payload": b"\x00\xff",
        "metadata": {"kind": "", "headers": {}, "encoding": "bytes"}, "available_at": 1, "created_at": 1,
        "published_at": 1,
    }  # fmt: skip
    return Message.objects.create(**values | changed)


def test_messages_through_the_orm() -> None:
    """Create, read and filter by JSON. A message is unique by topic, partition, id and target group."""
    stored = message()
    assert bytes(Message.objects.get(metadata__encoding="bytes").payload) == b"\x00\xff"
    assert str(stored) == f"orders@{stored.pk}"
    for other in (
        {"topic": "Orders"},
        {"partition_key": "K"},
        {"message_id": "Mine"},
        {"consumer_group": "a"},
    ):
        message(**other)
    with pytest.raises(IntegrityError):
        message()
    assert Message.objects.filter(topic="orders").count() == 4


def test_delivery_state_through_the_orm() -> None:
    """Create, get, update, count, order and delete by the composite primary key, which is unique."""

    def create(offset: int) -> DeliveryState:
        return DeliveryState.objects.create(
            consumer_group="a", topic="orders", partition_key="k", message_offset=offset, invisible_until=0,
            delivery_token=1, delivered_to="w", delivered_at=0, errors=[{"error": "x"}],
        )  # fmt: skip

    state = create(7)
    assert state.pk == ("a", "orders", "k", 7)
    assert DeliveryState.objects.get(pk=("a", "orders", "k", 7)).errors == [{"error": "x"}]
    assert str(state) == "a: orders@7"
    create(8)
    DeliveryState.objects.filter(pk=("a", "orders", "k", 7)).update(acked=True)
    assert [one.message_offset for one in DeliveryState.objects.order_by("-message_offset")] == [8, 7]
    assert DeliveryState.objects.filter(acked=True).count() == 1
    with pytest.raises(IntegrityError):
        create(8)
    state.delete()
    assert [one.pk for one in DeliveryState.objects.all()] == [("a", "orders", "k", 8)]


@pytest.mark.parametrize(
    ("model", "values", "shown"),
    [
        (
            PartitionLease,
            {"partition_key": "k", "leased_by": "w", "holder": "h", "leased_at": 1, "lease_renewed_at": 1},
            "a: orders/k by w",
        ),
        (Offset, {"partition_key": "k", "offset_acked": 5, "updated_at": 1}, "a: orders/k to 5"),
        (
            SubscriberHeartbeat,
            {"subscriber_name": "w", "incarnation": "i", "heartbeat_at": 1},
            "a: w on orders",
        ),
    ],
)
def test_small_tables_through_the_orm(model: type[models.Model], values: dict[str, Any], shown: str) -> None:
    """These tables have a surrogate key for the admin, and one row for each natural key."""
    manager = model._default_manager
    row = manager.create(consumer_group="a", topic="orders", **values)
    assert str(row) == shown
    assert manager.get(pk=row.pk) == row
    manager.create(consumer_group="A", topic="orders", **values)
    with pytest.raises(IntegrityError):
        manager.create(consumer_group="a", topic="orders", **values)


@pytest.mark.parametrize("model", MODELS)
def test_a_name_too_long_is_refused_and_never_cut(model: type[models.Model]) -> None:
    """The server refuses such a name in Django's strict mode, if it passes the checks."""
    lengths = {
        field.column: field.max_length
        for field in model._meta.fields
        if isinstance(field, models.CharField) and field.max_length
    }
    for name in ("consumer_group", "topic"):
        assert lengths[name] == 128
    assert all(length in (32, 64, 128, 255) for length in lengths.values())
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@SESSION.sql_mode")
        assert "STRICT_TRANS_TABLES" in cursor.fetchone()[0]
