"""The Python code in the documents runs, and does what the documents say."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Sequence

import pytest

from django_mqueue.spark.cli.arguments import add_connection, add_launching
from django_mqueue.spark.cli.verbs import VERBS
from tests.support.sampling import changed_files, sample

from .blocks import DOCUMENTS, ROOT, blocks, name_of
from .execute import runs
from .project import PATIENCE, Project

RUN_HANDLERS = """
from django_mqueue.workers.registry import handlers
from django_mqueue.workers.runner import Runner, RunOptions
runner = Runner(handlers(), RunOptions(drain=True, max_seconds=200))
runner.run()
"""

BEFORE = {
    "docs/reference/dead-letters.md": """
from django_mqueue import Subscription, publish
publish("orders", {"order": 1}, key="ada", id="order-1")
publish("orders", {"order": 2}, key="ada", id="order-2")
with Subscription("orders", group="billing") as subscription:
    first, second = subscription.poll()
    first.reject("KeyError: 'currency'")
    second.nack(delay=60, error="no connection")
""",
}

BEFORE["docs/reference/signals.md"] = """
from django.conf import settings
settings.ADMINS = ["ops@example.com"] if __import__("django").VERSION >= (6,) else [("ops", "ops@example.com")]
settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
"""
BEFORE["docs/how-to/trace-messages.md"] = """
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
exporter = InMemorySpanExporter()
"""
BEFORE["docs/how-to/find-messages.md"] = """
from django_mqueue import Subscription, publish
publish("orders", {"order": 1, "customer": {"id": 7}}, key="ada", id="order-1", kind="order.placed")
publish("orders", {"order": 2, "customer": {"id": 8}}, key="bob", id="order-2", kind="order.placed")
with Subscription("orders", group="billing") as subscription:
    first, second = subscription.poll()
    first.nack(delay=60, error="ConnectionError: no answer")
    second.reject("no such customer")
for n in range(3, 9):
    publish("orders", {"order": n, "customer": {"id": 7}}, key="ada", id=f"order-{n}", kind="order.placed")
"""

BEFORE["docs/how-to/monitor-with-prometheus.md"] = """
from django.conf import settings
settings.METRICS_TOKEN = "s3cret"
"""

BEFORE["docs/how-to/mask-fields.md"] = """
import sys
sys.modules["shop.masks"] = sys.modules["docs_example"]
"""

BEFORE["docs/how-to/run-jobs.md"] = """
from django.conf import settings
sales = {"task": "shop.tasks.report_sales", "cron": "0 6 * * *", "timezone": "Europe/Berlin"}
options = {"max_attempts": 3, "recurring": {"sales": sales}}
settings.TASKS = {"default": {"BACKEND": "django_mqueue.tasks.MQueueBackend", "OPTIONS": options}}
import sys
sys.modules["shop.tasks"] = sys.modules["docs_example"]
"""

BEFORE["docs/how-to/run-a-worklist.md"] = """
from django.contrib.auth.models import User
ann, rita = (User.objects.create_superuser(name) for name in ("ann", "rita"))
"""

BEFORE["docs/how-to/move-to-jobs.md"] = """
from django.conf import settings
settings.TASKS = {"default": {"BACKEND": "django_mqueue.tasks.MQueueBackend", "QUEUES": ["mail"]}}
"""

BEFORE["docs/reference/request.md"] = """
import threading
import django_mqueue
from django.db import connections
from django_mqueue.workers.registry import handlers
from django_mqueue.workers.runner import Runner, RunOptions
_runners, _done = [], threading.Event()
_request = django_mqueue.request
# The example's timeout is too short for a slow machine.
django_mqueue.request = lambda *values, **named: _request(*values, **{**named, "timeout": 200})

def _work():
    while "prices" not in {handler.topic for handler in handlers()}:
        _done.wait(0.01)
    _runners.append(Runner(handlers(["prices"]), RunOptions(max_seconds=600)))
    _runners[0].run()
    connections.close_all()

_worker = threading.Thread(target=_work)
_worker.start()
"""

AFTER = {
    "docs/how-to/mask-fields.md": """
from django.test import override_settings
from django_mqueue import publish
from django_mqueue.browse.masking import masked
from django_mqueue.inspect import messages
publish("orders", {"order": 1, "card": "4711"})
publish("orders", [4711])
with override_settings(MQUEUE={"MASK": "shop.masks.mask"}):
    assert [masked(m).payload for m in messages("orders")] == [{"order": 1, "card": "…"}, [4711]]
""",
    "docs/how-to/find-messages.md": """
assert [m.id for m in page] == ["order-7"], page
assert removed == 5 and hurried == 1, (removed, hurried)
with Subscription("orders", group="billing") as subscription:
    got = subscription.poll()
    assert [(d.id, d.attempt) for d in got] == [("order-1", 2)], got
""",
    "docs/reference/request.md": """
while _worker.is_alive() and not (_runners and _runners[0]._joined):
    _done.wait(0.01)
assert price_of("tea", 3) == 12
from django_mqueue import RequestFailed
try:
    request("prices", {"article": "coffee"})
except RequestFailed as error:
    assert "LookupError" in error.reason, error.reason
else:
    raise AssertionError
from django_mqueue.models import Message
assert not Message.objects.filter(topic__endswith="_replies").exists()
_runners[0].stop()
_worker.join()
""",
    "docs/how-to/move-to-jobs.md": """
import sys
assert result.status == "READY" and result.task.run_after == in_five_minutes, result
from django_mqueue.testing import drain
drain(until=timedelta(minutes=6))
result.refresh()
assert result.return_value is True, result
thanked.refresh(), greeted.refresh()
assert (thanked.return_value, greeted.return_value) == ("Thank you, ada.", "Hello, ada.")
from django_mqueue.testing import assert_enqueued
assert_enqueued(note, thanked.id)
""",
    "docs/how-to/run-jobs.md": """
from django.core.management import call_command
assert result.status == "READY", result
assert job.next_due is None
call_command("runconsumer", tasks=[], drain=True, verbosity=0)
result.refresh()
assert result.return_value.endswith(" orders"), result
assert len(results) == 500
results[-1].refresh()
assert results[-1].status == "SUCCESSFUL"
assert group.counts() == {"SUCCESSFUL": 2}, group.counts()
from django_mqueue.testing import assert_enqueued
assert_enqueued(tell_customer, count=2)
from django_mqueue import scheduled
assert len(list(scheduled("tasks.default"))) == 2
""",
    "README.md": RUN_HANDLERS
    + """
from shop.models import Invoice
assert runner.counts == {"ack": 1}, runner.counts
assert Invoice.objects.get().order == order
""",
    "docs/how-to/publish-safely.md": """
from django_mqueue.models import Message
assert Message.objects.filter(topic="orders").count() == 2
assert Message.objects.filter(topic="newsletters").count() == 7
assert bytes(Message.objects.get(topic="pictures").payload) == b"\\x89PNG..."
assert Message.objects.filter(topic="payments").count() == 1
""",
    "docs/how-to/write-a-handler.md": """
from django_mqueue import publish
from shop.orders import place_order
for amount in (30, 5000):
    place_order("ada", amount)
place_order("closed-on-sundays", 30)
publish("orders", {"order": 0})
"""
    + RUN_HANDLERS
    + """
from django_mqueue.models import DeliveryState, Message
assert Invoice.objects.count() == 3
reserve = DeliveryState.objects.filter(consumer_group="warehouse").order_by("message_offset")
assert [(s.acked, s.failure_count) for s in reserve] == [(1, 0), (0, 1), (1, 0), (1, 1)], reserve.values()
from django_mqueue import scheduled
assert [message.group for message in scheduled("orders")] == ["warehouse"], "it waits for hours"
assert Message.objects.get(topic="orders_dlq", failed_group="warehouse").last_error == "no such order"
assert DeliveryState.objects.filter(consumer_group="ledger", acked=True).count() == 4
from django_mqueue.workers.registry import handlers as registered
waits = {h.group: [h.retry(n, ConnectionError()) for n in (1, 2, 9)] for h in registered() if h.topic == "orders"}
assert waits["labels"] == [10, 300, 3600], waits
assert waits["couriers"] == [60, 60, 60], waits
assert {h.group: h for h in registered()}["couriers"].retry(1, KeyError()) is None
""",
    "docs/how-to/take-effect-exactly-once.md": """
from shop.orders import place_order
place_order("ada", 30)
"""
    + RUN_HANDLERS
    + """
from django_mqueue.models import DeliveryState, Message
assert runner.counts["ack"] >= 2
assert Invoice.objects.count() == 1
assert Message.objects.filter(topic="send-invoice").count() == 1
assert DeliveryState.objects.filter(consumer_group="billing", acked=True).count() == 1
assert DeliveryState.objects.filter(consumer_group="mail", acked=True).count() == 1
from django_mqueue import Subscription
with Subscription("orders", group="import", name="import-1") as subscription:
    (delivery,) = subscription.poll()
    with delivery.atomic():
        pass
assert DeliveryState.objects.get(consumer_group="import").acked
""",
    "docs/how-to/handle-batches.md": """
from django_mqueue import publish
from shop.orders import place_order
for amount in (30, 40, 5000):
    place_order("ada", amount)
publish("orders", {"order": 0})
"""
    + RUN_HANDLERS
    + """
from django_mqueue.models import DeliveryState, Message
assert sorted(Invoice.objects.values_list("amount", flat=True)) == [30, 40, 5000]
assert DeliveryState.objects.filter(consumer_group__in=["customers", "billing"], acked=True).count() == 8
parcels = DeliveryState.objects.filter(consumer_group="parcels").order_by("message_offset")
assert [(s.acked, s.failure_count) for s in parcels] == [(1, 0), (1, 0), (0, 1), (1, 1)], parcels.values()
assert Message.objects.get(topic="orders_dlq").last_error == "no such order"
""",
    "docs/how-to/limit-run-time.md": """
from django_mqueue.workers.registry import handlers as registered
limits = {h.group: h.max_runtime for h in registered() if h.topic == "orders"}
assert limits["cards"] == 30 and limits["rates"] == 120, limits
""",
    "docs/how-to/choose-what-to-handle.md": """
publish("orders", {"amount": 5000}, headers={"type": "order"})
publish("shop-events", {"order": 8, "colour": "red"}, kind="order.placed")
publish("shop-events", {"order": 7}, kind="order.paid")
"""
    + RUN_HANDLERS
    + """
from django_mqueue.models import DeliveryState, Message
assert DeliveryState.objects.filter(consumer_group__in=["exports", "big"], acked=True).count() == 2
errors = sorted(Message.objects.filter(topic="shop-events_dlq").values_list("last_error", flat=True))
assert "kind 'order.paid' is not accepted" in errors[0] and "has no field 'colour'" in errors[1], errors
""",
    "docs/how-to/consume-by-hand.md": """
from django_mqueue.models import DeliveryState, Message
assert DeliveryState.objects.filter(consumer_group="archive", acked=True).count() == 4
assert DeliveryState.objects.filter(consumer_group="audit", acked=True).count() == 3
assert Message.objects.get(topic="readings_dlq").last_error == "not a reading"
""",
    "docs/reference/dead-letters.md": """
with Subscription("orders", group="billing") as subscription:
    deliveries = subscription.poll()
    assert [(d.id, d.payload["currency"], d.attempt) for d in deliveries] == [("order-1", "CHF", 1)], deliveries
from django_mqueue.models import Message
assert not Message.objects.filter(topic="orders_dlq").exists()
""",
    "docs/how-to/move-or-pause-a-group.md": """
from django_mqueue import Subscription
publish("orders", {"order": 2})
with Subscription("orders", group="billing") as subscription:
    payloads = [delivery.payload for delivery in subscription.poll()]
assert payloads[-1:] == [{"order": 2}], payloads
""",
    "docs/how-to/keep-or-delete-messages.md": """
from django_mqueue.models import Offset
assert not Offset.objects.filter(consumer_group="old-report").exists()
""",
}

AFTER["docs/how-to/monitor-with-prometheus.md"] = """
from django.core.exceptions import PermissionDenied
from django.test import RequestFactory
view, requests = urlpatterns[0].callback, RequestFactory()
assert view(requests.get("/metrics", headers={"Authorization": "Bearer s3cret"})).status_code == 200
try:
    view(requests.get("/metrics"))
except PermissionDenied:
    pass
else:
    raise AssertionError
"""

AFTER["docs/how-to/log-as-json.md"] = """
import io, json, logging.config
from django_mqueue import consumer, publish
stream = io.StringIO()
LOGGING["handlers"]["console"]["stream"] = stream
logging.config.dictConfig(LOGGING)
@consumer("logged", group="billing", retry=[1])
def bill(message):
    raise ConnectionError("no answer")
publish("logged", {"order": 7}, key="ada", id="order-7")
from django_mqueue.workers.registry import handlers
from django_mqueue.workers.runner import Runner, RunOptions
Runner(handlers(["logged"]), RunOptions(drain=True, max_messages=1, max_seconds=200, name="worker-1")).run()
records = [json.loads(line) for line in stream.getvalue().splitlines()]
(failed,) = [record for record in records if record.get("mqueue_event") == "retried"]
assert failed["message"].startswith("attempt failed: docs_example.bill: logged@"), failed
shown = dict(mqueue_topic="logged", mqueue_group="billing", mqueue_subscriber="worker-1", mqueue_id="order-7",
    mqueue_key="ada", mqueue_attempt=1, mqueue_error="ConnectionError: no answer", mqueue_retry_in=1.0)
assert shown.items() <= failed.items(), failed
assert [r["mqueue_event"] for r in records if r["mqueue_event"].startswith("worker")] == [
    "worker_started", "worker_stopped"]
"""

AFTER["docs/how-to/erase-a-persons-data.md"] = """
assert sum(one.deleted for one in erased) == 2 and not any(one.left for one in erased), erased
from django_mqueue.models import Message
assert not Message.objects.filter(topic__startswith="orders").exists()
"""

AFTER["docs/how-to/move-from-an-outbox.md"] = (
    RUN_HANDLERS.replace("handlers()", "handlers(['order-events:mail'])")
    + """
assert seen == [row] and not published[0].created, (seen, published)
"""
)

AFTER["docs/how-to/run-a-worklist.md"] = """
from django.core.management import call_command
from django_mqueue.worklists.preparing import prepare
prepare("default")  # As migrate does.
publish("refund-requests", {"order": order.pk, "amount": 10})
call_command("runconsumer", drain=True, verbosity=0)
small, large = find("refunds").order_by("payload__amount")
assert (small.state, small.result, large.state) == ("finished", {"refunded": 10}, "unassigned"), (small, large)
large.take(by=ann)
large.move("review", by=ann)
large.finish(by=rita)
assert list(find("refunds", attributes={"country": "DE"})) == [large]
assert [row.share for row in finished("refunds")] == [0.5] or len(finished("refunds")) == 2
call_command("mqueue", "worklist", "list", "refunds", "--overdue")
"""

AFTER["docs/reference/signals.md"] = (
    """
from shop import consumers
from shop.orders import place_order
place_order("ada", 30)
place_order("ada", -5)
"""
    + RUN_HANDLERS.replace("handlers()", "handlers(['orders:billing'])")
    + """
from django.core import mail
assert counts == {"done": 1}, counts
(letter,) = mail.outbox
assert letter.subject.endswith("billing gave up a message of orders"), letter.subject
"""
)
AFTER["docs/how-to/trace-messages.md"] = (
    """
provider.add_span_processor(SimpleSpanProcessor(exporter))
with trace.get_tracer("shop").start_as_current_span("checkout"):
    publish("orders", {"order": 2}, key="ada")
"""
    + RUN_HANDLERS
    + """
spans = {s.name: s for s in exporter.get_finished_spans() if s.attributes.get("shop.order") != 1}
(process,) = [s for s in exporter.get_finished_spans() if s.attributes.get("shop.order") == 2]
assert process.parent.span_id == spans["publish orders"].context.span_id
assert spans["publish orders"].parent.span_id == spans["checkout"].context.span_id
provider.shutdown()
"""
)

BEFORE["docs/reference/report.md"] = """
from django_mqueue import Subscription, publish
publish("orders", {"order": 1}, key="ada")
publish("orders", {"order": 2}, key="bob")
with Subscription("orders", group="billing") as subscription:
    good, bad = subscription.poll()
    good.ack()
    bad.reject("NoSuchCustomer: bob")
"""
AFTER["docs/reference/report.md"] = """
assert (billing.published, billing.finished, billing.dead, billing.lag) == (2, 1, 1, 0)
assert [(one.error, one.count) for one in found.errors] == [("NoSuchCustomer", 1)]
assert billing.ack.p50 is not None
"""
BEFORE["docs/reference/archive.md"] = """
from tempfile import mkdtemp
from pathlib import Path
from django_mqueue import publish_many
from django_mqueue.spark import archive, compact, session
place = Path(mkdtemp()) / "archive"
spark = session(master="local[2]")
for n in range(3):
    publish_many("orders", range(10 * n, 10 * n + 10))
    archive(spark, "orders", str(place))
    if n == 1:
        compact(spark, str(place))
"""
AFTER["docs/reference/archive.md"] = """
assert sorted(frame["offset"])[-1] == last and len(set(frame["offset"])) == 30
from django_mqueue.spark import Archive
assert len(dataset.files) == len(Archive.open(place).entries("orders"))
spark.stop()
"""
NEED_SPARK = {
    f"docs/how-to/{page}.md"
    for page in (
        "publish-with-spark",
        "read-the-log-with-spark",
        "replay-from-an-archive",
        "archive-topics",
    )
} | {"docs/reference/archive.md", "docs/reference/report.md"}
IN_A_TEST_FILE = "docs/how-to/test-your-code.md"
CONFIRM = """
from django_tasks import task
from shop.models import Order
@task
def confirm(order_id):
    order = Order.objects.get(pk=order_id)
    return f"order {order.pk} of {order.customer} is confirmed"
"""
"""The task that it tests."""
TASKS = {"default": {"BACKEND": "django_mqueue.tasks.MQueueBackend"}}


def test_every_document_with_a_follow_up_exists() -> None:
    """A renamed document must not lose its checks."""
    assert {*BEFORE, *AFTER, *NEED_SPARK, IN_A_TEST_FILE} <= {name_of(document) for document in DOCUMENTS}


RUN = [name_of(d) for d in DOCUMENTS if any(map(runs, blocks(d))) and name_of(d) != IN_A_TEST_FILE]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.always(name)) for name in RUN if name not in NEED_SPARK]
)
def test_the_blocks_run_and_do_what_is_said(name: str, example_shop: Project) -> None:
    """Run all Python blocks of a document in order on the real database, and then check the results."""
    execute([name], example_shop)


@pytest.mark.always
@pytest.mark.spark
@pytest.mark.timeout(1500)
@pytest.mark.django_db(transaction=True)
def test_the_blocks_with_spark_run_and_do_what_is_said(
    example_shop: Project, seed: str | None, request: pytest.FixtureRequest
) -> None:
    """Run the documents that use Spark in one process, one after another. A sample has one in six, and the changed."""
    base = request.config.getoption("--base")
    changed = changed_files(base) if base else set()
    chosen = sample(seed, "documents with Spark", [name for name in RUN if name in NEED_SPARK], 6, changed)
    execute(chosen, example_shop, timeout=1400)


def execute(names: Sequence[str], project: Project, timeout: float = PATIENCE) -> None:
    """Run the documents, with their code before and after."""
    paths = {name: str(ROOT / name) for name in names}
    before, after = ({paths[name]: code[name] for name in names if name in code} for code in (BEFORE, AFTER))
    project.run(
        "python", "-m", "tests.docs_and_example.docs.execute", *paths.values(),
        timeout=timeout, BEFORE=json.dumps(before), AFTER=json.dumps(after),
    )  # fmt: skip


@pytest.mark.django_db(transaction=True)
def test_the_tests_that_are_shown_pass(example_shop: Project) -> None:
    """The how-to about testing is itself a test file."""
    code = "\n\n".join(block.text for block in blocks(ROOT / IN_A_TEST_FILE) if runs(block))
    (example_shop.directory / "shop" / "tests.py").write_text(code)
    (example_shop.directory / "shop" / "tasks.py").write_text(CONFIRM)
    (example_shop.directory / "config" / "with_tasks.py").write_text(
        f"from .settings import *\nTASKS = {TASKS}\n"
    )
    output = example_shop.run(
        "python", "-m", "pytest", "-q", "--create-db", "-p", "no:cacheprovider", "-p", "django_mqueue.pytest_plugin",
        "--rootdir=.", "--basetemp=.tmp", "--ds=config.with_tasks",
        "shop/tests.py",
    )  # fmt: skip
    assert "9 passed" in output


def test_shell_commands_name_what_exists() -> None:
    """Console blocks outside the tutorial call only commands that exist."""
    known = {
        "runconsumer",
        "migrate",
        "check",
        "makemigrations",
        "startapp",
        "shell",
        "mqueue",
        "mqueue_spark",
    }
    for document in DOCUMENTS:
        for block in blocks(document):
            for line in block.text.splitlines() if block.language == "console" else ():
                words = line.removeprefix("$ ").split()
                if words[:2] == ["python", "manage.py"]:
                    assert words[2] in known, f"{block}: {line}"
                if words[:1] == ["python3"] and words[1].endswith(".py"):
                    assert (ROOT / words[1]).exists(), f"{block}: {line}"


def test_verbs_that_are_shown_and_their_options_are_there() -> None:
    """The documents show only existing verbs and options of Spark jobs, in both commands that start them."""
    entries = ("python manage.py mqueue_spark ", "python -m django_mqueue.spark ")
    verbs = {verb.name: verb for verb in VERBS}
    parsers = {}
    for name, verb in verbs.items():
        parsers[name] = ArgumentParser()
        verb.arguments(parsers[name])
        add_connection(parsers[name])
        add_launching(parsers[name])
    seen = set()
    for document in DOCUMENTS:
        for block in blocks(document):
            text = block.text.replace("\\\n", " ") if block.language in ("console", "ini", "") else ""
            for line in text.splitlines():
                _, entry, rest = next(
                    (found for each in entries if (found := line.partition(each))[1]), ("", "", "")
                )
                name, *words = rest.split() or [""]
                if not entry or name == "VERB":
                    continue
                assert name in verbs, f"{block}: {line}"
                seen.add(name)
                for word in words:
                    option = word.partition("=")[0]
                    if option.startswith("--"):
                        assert option in parsers[name]._option_string_actions, f"{block}: {line}"
    assert "doctor" in seen
