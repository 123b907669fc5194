"""Options are valid, or the error says what to do. Nothing here needs Spark."""

from __future__ import annotations

import pytest

from django_mqueue.spark.connecting import ConnectionParameters
from django_mqueue.spark.errors import OptionError
from django_mqueue.spark.reader.options import Bound, read_options

TOPIC = {"topic": "orders"}


def test_names_are_compared_without_regard_to_case() -> None:
    found = read_options({"SUBSCRIBE": "b, a,b", "FAILONDATALOSS": "False", "minpartitions": "4"})
    assert found.topics == ("a", "b")
    assert not found.fail_on_data_loss
    assert found.min_partitions == 4


def test_what_is_not_said_is_safe() -> None:
    found = read_options(TOPIC)
    assert (found.start, found.end) == (Bound("earliest"), Bound("latest"))
    assert found.fail_on_data_loss
    assert found.targets == ("",)
    assert read_options({**TOPIC, "group": "archive"}, streaming=True).targets == ("", "archive")
    assert read_options({**TOPIC, "includeTargeted": "true"}).targets is None


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({}, "'topic'"),
        ({"topic": "a", "subscribe": "a,b"}, "'topic' and 'subscribe'"),
        ({"topic": "a", "subscribePattern": "a.*"}, "'subscribePattern'"),
        ({"subscribePattern": "("}, "regular expression"),
        ({"topic": " orders"}, "blanks"),
        ({"topic": "orders_scheduled"}, "reserved"),
        ({"subscribe": " , "}, "must not be empty"),
        ({**TOPIC, "startingOffset": "earliest"}, "'startingoffset'"),
        ({**TOPIC, "path": "/tmp"}, "'path'"),
        ({**TOPIC, "password": "secret"}, "MQUEUE_PASSWORD"),
        ({**TOPIC, "startingOffsets": "first"}, '{"orders": 501}'),
        ({**TOPIC, "startingOffsets": '{"other": 1}'}, "exactly the topics"),
        ({**TOPIC, "startingOffsets": '{"orders": "1"}'}, "startingOffsets"),
        ({**TOPIC, "endingOffsets": "earliest"}, "nothing could be read"),
        ({**TOPIC, "endingOffsets": '{"orders": -2}'}, "must be latest, an offset, or a JSON"),
        ({**TOPIC, "startingOffsets": "5", "startingTimestamp": "1"}, "contradict"),
        ({**TOPIC, "startingOffsets": "9", "endingOffsets": "5"}, "before it begins (9)"),
        ({**TOPIC, "startingTimestamp": "9", "endingTimestamp": "5"}, "before it begins (9)"),
        ({**TOPIC, "startingTimestamp": "2026-01-01"}, "milliseconds since 1970"),
        ({**TOPIC, "minPartitions": "0"}, "at least 1"),
        ({**TOPIC, "maxRecordsPerPartition": "many"}, "at least 1"),
        ({**TOPIC, "failOnDataLoss": "no"}, "true or false"),
        ({**TOPIC, "pollInterval": "0"}, "more than 0"),
        ({**TOPIC, "table": "letters"}, "dead_letters"),
        ({**TOPIC, "group": "archive"}, "readStream"),
        ({**TOPIC, "groups": "billing"}, "'group'"),
        ({**TOPIC, "maxOffsetsPerTrigger": "10"}, "only a stream has it"),
        ({**TOPIC, "port": "0", "database": "shop"}, "65535"),
        ({**TOPIC, "sslMode": "required", "database": "shop"}, "REQUIRED"),
        ({**TOPIC, "sslMode": "REQUIRED"}, "'database'"),
        ({**TOPIC, "host": "db"}, "'database'"),
        ({**TOPIC, "using": "default", "database": "shop"}, "DATABASES"),
        ({**TOPIC, "connectionHook": "hook"}, "package.module:function"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(options: dict[str, str], named: str) -> None:
    with pytest.raises(OptionError) as caught:
        read_options(options, streaming=False)
    assert named in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"endingOffsets": "latest"}, "no end"),
        ({"endingTimestamp": "1"}, "no end"),
        ({"table": "deliveries"}, "batches"),
        ({"group": "archive", "settle": "false"}, "settle"),
        ({"group": ""}, "must not be empty"),
    ],
    ids=str,
)
def test_what_a_stream_cannot_is_refused(options: dict[str, str], named: str) -> None:
    with pytest.raises(OptionError, match=named):
        read_options({**TOPIC, **options}, streaming=True)


def test_what_is_for_one_kind_of_read_is_let_pass_where_the_kind_is_not_known() -> None:
    """Spark asks for the schema before it says whether the read is a stream."""
    assert read_options({**TOPIC, "group": "archive", "maxOffsetsPerTrigger": "9"}).group == "archive"
    assert read_options({**TOPIC, "endingOffsets": "9"}).end.of("orders") == 9


def test_offsets_are_given_as_kafkas_are() -> None:
    found = read_options({"subscribe": "a,b", "startingOffsets": '{"a": 7, "b": -2}', "endingOffsets": "9"})
    assert [found.start.of(topic) for topic in ("a", "b")] == [7, -2]
    assert found.end.of("a") == 9
    told = '{"topics": {"orders": 501}, "query": "q"}'
    assert read_options({**TOPIC, "startingOffsets": told}).start.of("orders") == 501


def test_parameters_of_the_connection_have_no_password() -> None:
    found = read_options(
        {**TOPIC, "host": "db", "port": "3307", "user": "reader", "database": "shop", "sslCa": "/ca"}
    )
    assert found.connecting == ConnectionParameters(
        {"host": "db", "user": "reader", "database": "shop", "port": 3307, "ssl": {"ca": "/ca"}}
    )
    assert found.connecting.where() == "database 'shop' at db:3307 as 'reader'"
