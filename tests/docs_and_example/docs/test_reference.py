"""The reference is complete and correct: names, signatures, settings, options, exceptions, checks, tables."""

from __future__ import annotations

import inspect
import re
from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import load_command_class
from django.db import connection

import django_mqueue
import django_mqueue.spark
from django_mqueue import checks, conf, exceptions, models, signals
from django_mqueue import inspect as inspecting
from django_mqueue.doctor import routes, servers, variables
from django_mqueue.management.commands.mqueue import VERBS as VERBS_OF_MQUEUE
from django_mqueue.messages import Message
from django_mqueue.policy import names
from django_mqueue.spark.cli.arguments import add_connection, add_launching
from django_mqueue.spark.cli.verbs import VERBS

from .blocks import DOCUMENTS, ROOT, Block, blocks, name_of
from .execute import compiled

REFERENCE = ROOT / "docs" / "reference"
DJANGO_OPTIONS = {
    "--help", "--version", "--verbosity", "--settings", "--pythonpath", "--traceback", "--no-color",
    "--force-color", "--skip-checks",
}  # fmt: skip

TABLES = [
    models.Message,
    models.DeliveryState,
    models.PartitionLease,
    models.Offset,
    models.SubscriberHeartbeat,
]
SIGNATURES = [block for document in DOCUMENTS for block in blocks(document) if block.has("signature")]


def text_of(name: str) -> str:
    return (REFERENCE / name).read_text()


def everything() -> str:
    return "\n".join(path.read_text() for path in sorted(REFERENCE.glob("*.md")))


def first_cells(name: str) -> list[str]:
    """Return the first cell of each table row, without backquotes."""
    rows = re.findall(r"^\| (.+?) \|", text_of(name), flags=re.MULTILINE)
    return [re.sub(r"`", "", row) for row in rows]


@pytest.mark.parametrize(
    "name", sorted({*django_mqueue.__all__, *django_mqueue.spark.__all__} - {"__version__"})
)
def test_every_public_name_is_in_the_reference(name: str) -> None:
    assert re.search(rf"`[^`\n]*\b{name}\b[^`\n]*`", everything()), f"{name} is not in docs/reference"


SPARK = ("docs/reference/archive.md", "docs/reference/spark.md", "docs/reference/report.md")
"""Pages whose functions are imported from modules that need PySpark or Arrow."""


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(block, id=str(block), marks=[pytest.mark.spark] * (name_of(block.document) in SPARK))
        for block in SIGNATURES
    ],
)
def test_signatures_are_those_of_the_code(block: Block) -> None:
    """The signatures agree in the names, order, kinds and defaults of all parameters. A block may have several."""
    namespace: dict[str, Any] = {
        "ExponentialBackoff": django_mqueue.ExponentialBackoff,
        "timedelta": timedelta,
    }
    exec(compiled(block), namespace)
    homes: dict[str, Any] = {
        "docs/reference/inspect.md": inspecting,
        **dict.fromkeys(SPARK, django_mqueue.spark),
    }
    home = homes.get(name_of(block.document), django_mqueue)
    names = [name for name in namespace if name in home.__all__ and name != "ExponentialBackoff"]
    assert names
    for name in names:
        assert shape(namespace[name]) == shape(getattr(home, name)), name


def shape(function: Any) -> list[tuple[str, object, object]]:
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


def test_every_function_and_class_with_arguments_has_its_signature() -> None:
    shown = {
        name
        for block in SIGNATURES
        for name in re.findall(r"^(?:async def|def|class) (\w+)", block.text, re.MULTILINE)
    }
    assert shown == {
        "apublish", "publish", "publish_many", "consumer", "Subscription", "subscribe", "unsubscribe", "redrive",
        "purge", "pause", "resume", "reset", "scheduled", "cancel", "reschedule", "messages", "remove", "send_to_front",
        "counts", "groups", "release", "partitions", "deliveries", "preview_reset", "topics", "group_figures",
        "topic_figures", "rates", "latency", "lag", "holds", "subscribers", "request", "arequest",
        "session", "settings_options", "keep_order", "report", "replay", "backfill", "archive", "compact", "erase",
        "verify", "export", "collect_all", "delay", "hold", "unhold", "redeliver",
    }  # fmt: skip


def test_settings_are_all_there_with_their_defaults() -> None:
    """The first two columns of the table match ``conf.OPTIONS``."""
    rows = dict(re.findall(r"^\| `([A-Z_]+)` \| (\S+) \|", text_of("settings.md"), flags=re.MULTILINE))
    assert set(rows) == {*conf.OPTIONS, "TOPICS"}
    for name, option in conf.OPTIONS.items():
        shown = rows[name].strip("`").strip('"')
        assert shown == str(option.default), f"{name}: {shown} in the reference, {option.default} in the code"


def test_limits_of_settings_are_told() -> None:
    rows = dict(
        re.findall(r"^\| `([A-Z_]+)` \| \S+ \| ([^|]+) \|", text_of("settings.md"), flags=re.MULTILINE)
    )
    for name, option in conf.OPTIONS.items():
        assert option.unit in rows[name], name
        assert option.low is None or f"{option.low}" in rows[name], name
    assert str(conf.SPREAD_MAX) in rows["SPREAD"]
    assert str(names.DLQ_SUFFIX_MAX) in rows["DLQ_SUFFIX"]


def test_runconsumer_options_are_all_there_with_their_defaults() -> None:
    parser = load_command_class("django_mqueue", "runconsumer").create_parser("manage.py", "runconsumer")
    actions = {
        option: action
        for action in parser._actions
        for option in action.option_strings
        if option.startswith("--")
    }
    rows = dict(
        re.findall(r"^\| `(--[a-z-]+)[^`]*` \| ([^|]*?) ?\|", text_of("runconsumer.md"), flags=re.MULTILINE)
    )
    assert set(rows) == set(actions) - DJANGO_OPTIONS
    for option, default in rows.items():
        if default.isdigit():
            assert actions[option].default == int(default), option


SHARED = ("All verbs", "Select messages")
"""Sections of mqueue.md whose options several verbs have."""


def test_verbs_of_mqueue_and_their_options_are_all_there() -> None:
    """Each verb has a section, which names the options that the shared sections do not name, and no others."""
    text = text_of("mqueue.md")
    sections = dict(re.findall(r"^##+ ([^\n]+)\n(.*?)(?=^## |^### |\Z)", text, re.MULTILINE | re.DOTALL))
    assert set(sections) - set(SHARED) == set(VERBS_OF_MQUEUE)
    shared = {option for name in SHARED for option in options_in(sections[name])}
    everywhere: set[str] = set()
    for verb in VERBS_OF_MQUEUE.values():
        parser = ArgumentParser(add_help=False)
        verb.add_to(parser)
        own = {option for action in parser._actions for option in action.option_strings}
        everywhere |= own
        told = set(options_in(sections[verb.name]))
        assert own <= told | shared, verb.name
        others = {"--rate"} if verb.name == "purge" else set()
        assert told <= own | shared | others, verb.name
    assert shared <= everywhere | {"--help"}


def options_in(text: str) -> list[str]:
    return re.findall(r"(?<![\w-])--[a-z][a-z-]*", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def test_exceptions_are_all_there() -> None:
    shown = " ".join(first_cells("exceptions.md"))
    for name, value in vars(exceptions).items():
        if isinstance(value, type) and issubclass(value, exceptions.MQueueError):
            assert re.search(rf"\b{name}\b", shown), name


def test_fields_of_a_message_are_all_there() -> None:
    shown = first_cells("handlers.md")
    assert set(Message.__dataclass_fields__) <= set(shown)


def test_fields_of_an_inspected_message_are_all_there() -> None:
    shown = ", ".join(first_cells("inspect.md")).split(", ")
    kinds = (
        inspecting.Inspected, inspecting.FailedAttempt, inspecting.Page, inspecting.Standing,
        inspecting.PartitionPlace, inspecting.OpenDelivery, inspecting.ResetPreview,
    )  # fmt: skip
    for kind in kinds:
        assert set(kind.__dataclass_fields__) <= set(shown), kind


def test_verbs_of_a_delivery_are_all_there() -> None:
    verbs = {
        name for name, value in vars(django_mqueue.Delivery).items()
        if inspect.isfunction(value) and not name.startswith("_")
    }  # fmt: skip
    shown = {cell.partition("(")[0] for cell in first_cells("subscription.md")}
    assert verbs <= shown
    assert {"open", "poll", "ack", "close"} <= {
        cell.partition("(")[0] for cell in first_cells("subscription.md")
    }


def test_signals_are_all_there_with_their_arguments() -> None:
    """The tests in ``tests/features/signals`` check that each signal is sent with these arguments."""
    names = {name for name, value in vars(signals).items() if isinstance(value, signals.TopicSignal)}
    assert names <= set(first_cells("signals.md"))


def test_checks_are_all_there() -> None:
    sources = [inspect.getsource(module) for module in (checks, routes, servers, variables)]
    numbers = set(re.findall(r"\b([EW]\d{3})\b", "\n".join(sources)))
    assert numbers
    assert {cell.removeprefix("django_mqueue.") for cell in first_cells("checks.md")} >= numbers


@pytest.mark.parametrize("model", TABLES, ids=lambda model: model.__name__)
def test_tables_are_told_column_by_column(model: Any) -> None:
    section = re.split(r"^## ", text_of("tables.md"), flags=re.MULTILINE)
    (own,) = (part for part in section if part.startswith(model._meta.db_table))
    for field in model._meta.local_concrete_fields:
        assert f"`{field.column}`" in own, f"{model._meta.db_table}.{field.column}"


@pytest.mark.django_db
@pytest.mark.parametrize("model", TABLES, ids=lambda model: model.__name__)
def test_indexes_are_told_with_their_columns(model: Any) -> None:
    """The expected columns come from the server, not from the models."""
    table = model._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(f"SHOW INDEX FROM {table}")
        columns = [column[0].lower() for column in cursor.description]
        rows = [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]
    for name in {row["key_name"] for row in rows} - {"PRIMARY"}:
        parts = sorted((row["seq_in_index"], row["column_name"]) for row in rows if row["key_name"] == name)
        shown = ", ".join(column for _, column in parts)
        assert re.search(
            rf"^\| `{name}`(?: \(unique\))? \| `{shown}` \|", text_of("tables.md"), re.MULTILINE
        ), f"{table}: {name} ({shown})"


@pytest.mark.django_db
def test_queries_that_are_shown_run() -> None:
    """Run each SELECT and DELETE of the documents on the real tables."""
    found = 0
    for document in DOCUMENTS:
        for block in blocks(document):
            if block.language != "sql" or "…" in block.text:
                continue
            for statement in filter(str.strip, block.text.split(";")):
                if statement.strip().startswith(("SELECT", "DELETE")):
                    found += 1
                    with connection.cursor() as cursor:
                        cursor.execute(statement)
    assert found, [name_of(document) for document in DOCUMENTS]


def test_verbs_on_spark_and_their_options_are_all_there() -> None:
    """The page contains each verb, and the reference contains each option."""
    told = set(re.findall(r"(?<![\w-])--[a-z-]+", everything()))
    for verb in VERBS:
        assert verb.name in first_cells("mqueue_spark.md")
        parser = ArgumentParser()
        verb.arguments(parser)
        add_connection(parser)
        add_launching(parser)
        own = {option for action in parser._actions for option in action.option_strings}
        assert {option for option in own if option.startswith("--")} - told <= {"--help", "--password"}, (
            verb.name
        )


def test_all_migrations_are_in_the_table_of_changes() -> None:
    text = (ROOT / "docs" / "how-to" / "deploy.md").read_text()
    listed = [
        number for row in re.findall(r"^\| (\d{4}.*?) \|", text, re.MULTILINE) for number in row.split(", ")
    ]
    there = (ROOT / "django_mqueue" / "migrations").glob("0*.py")
    assert sorted(listed) == sorted(path.name[:4] for path in there)
