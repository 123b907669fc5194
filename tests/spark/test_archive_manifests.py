"""Names in an archive's folder and manifests: written, read back, and refused if they are incomplete."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_mqueue.spark.archiving.layout import (
    FOLDER_MAX,
    data_path,
    folder_of,
    is_manifest,
    manifest_name,
    manifest_path,
    topic_of,
)
from django_mqueue.spark.archiving.manifest import (
    FileEntry,
    Manifest,
    Marker,
    Part,
    read_manifest,
    read_marker,
)
from django_mqueue.spark.errors import ArchiveError

SHA = "0" * 64
ENTRY = FileEntry("messages/orders/2026-11-21/a.parquet", 2, 1, 3, "2026-11-21", 100, SHA)
MANIFEST = Manifest(
    topic="orders",
    group="archive",
    batch=7,
    life=3,
    position=4,
    tables={"messages": Part(0, 4, 2, (ENTRY,)), "deliveries": Part(0, 4, 0)},
    columns={"messages": {"offset": "int64"}},
    created_at="2026-11-21T20:00:00Z",
)


@given(st.text(min_size=1, max_size=128), st.text(min_size=1, max_size=128))
def test_folders_are_names_that_no_reader_takes_for_something_else(one: str, two: str) -> None:
    try:
        folder, other = folder_of(one), folder_of(two)
    except UnicodeEncodeError:
        return  # A topic's name cannot contain lone surrogates.
    assert len(folder) <= FOLDER_MAX
    assert not set(folder) & set("=/\\:*?[]{} \"'<>|&+#")
    assert folder[0] not in "._"
    assert (folder == other) == (one == two)
    assert topic_of(folder) in (one, None)


def test_names_are_as_documented() -> None:
    assert folder_of("orders") == "orders"
    assert folder_of("shop/orders 1") == "shop%2Forders%201"
    assert folder_of("..") == "%2E."
    assert topic_of(folder_of("ß" * 128)) is None
    assert manifest_path("orders", manifest_name(7)) == "manifests/orders/0000000007.json"
    assert manifest_name(50, compaction=7) == "compaction-0000000007"
    assert is_manifest("0000000050.json")
    assert is_manifest("compaction-0000000007.json")
    assert not is_manifest(".0000000001.json.abc")
    path = data_path("dead_letters", "a/b", "2026-11-21", 7, "f00", 1)
    assert path == "dead_letters/a%2Fb/2026-11-21/0000000007-f00-1.parquet"


def test_a_manifest_is_read_as_it_was_written() -> None:
    assert read_manifest(MANIFEST.json(), "x/0000000007.json") == MANIFEST
    marker = Marker("abc", "shop", "2026-11-21T20:00:00Z")
    assert read_marker(marker.json(), "x") == marker


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"format": 2},
            "format 2 is of a newer version of this package, which knows formats up to 1: upgrade it",
        ),
        ({"schema": 9}, "schema 9 is of a newer version"),
        ({"topic": None}, "'topic' is None, must be of type str"),
        ({"batch": -1}, "'batch' is -1, must be from 0"),
        ({"batch": True}, "'batch' is True, must be of type int"),
        ({"batch": 8}, "is the manifest 0000000008, under another one's name"),
        ({"compaction": 7}, "is the manifest compaction-0000000007, under another one's name"),
        ({"tables": {"letters": {}}}, "must be some of messages, dead_letters, deliveries"),
        (
            {"tables": {"messages": {"above": 4, "upto": 3, "rows": 0, "files": []}}},
            "'upto' is 3, must not be below",
        ),
        ({"tables": {"messages": {"above": 0, "upto": 3, "rows": 1, "files": []}}}, "but its files have 0"),
        ({"tables": {"messages": {"above": 0, "upto": 3, "files": []}}}, "messages: 'rows' is missing"),
        ({"tables": {"messages": []}}, "must hold a JSON object, not list"),
        ({"topic": ""}, "'topic' is , must not be empty"),
        ({"replaces": ["../0000000001"]}, "'replaces' is .*, must hold names of manifests"),
        ({"replaces": [7]}, "must hold names of manifests"),
    ],
)
def test_a_manifest_that_is_not_whole_is_refused(change: dict[str, Any], message: str) -> None:
    value = {**json.loads(MANIFEST.json()), **change}
    with pytest.raises(ArchiveError, match=message):
        read_manifest(json.dumps(value).encode(), "x/0000000007.json")


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "messages/orders/../../../secret.parquet",
        "messages/orders/2026-11-21/../../other/a.parquet",
        "messages/orders/./a.parquet",
        "messages/orders//a.parquet",
        "messages/orders/",
        "messages/orders",
        "messages/orders-2/2026-11-21/a.parquet",
        "deliveries/orders/2026-11-21/a.parquet",
        "mqueue-archive.json",
        "file:///etc/passwd",
        "messages/orders/..\\secret.parquet",
        "messages/orders/a.parquet\0",
        "",
    ],
)
def test_a_file_elsewhere_is_refused(path: str) -> None:
    """Cleaning deletes the files of manifests that no longer count, so a manifest must not name files elsewhere."""
    value = json.loads(MANIFEST.json())
    value["tables"]["messages"]["files"][0]["path"] = path
    with pytest.raises(ArchiveError, match=r"must lie in the folder messages/orders$"):
        read_manifest(json.dumps(value).encode(), "x/0000000007.json")


def test_what_is_cut_short_is_refused() -> None:
    whole = MANIFEST.json().rstrip()
    for length in (0, 1, len(whole) // 2, len(whole) - 1):
        with pytest.raises(ArchiveError, match="is not JSON"):
            read_manifest(whole[:length], "x/0000000007.json")
    with pytest.raises(ArchiveError, match="has offsets 1 to 3, but must lie above 1 and up to 4"):
        read_manifest(whole.replace(b'"above": 0', b'"above": 1'), "x/0000000007.json")
    with pytest.raises(ArchiveError, match="is not the marker of an archive of this package"):
        read_marker(b'{"archive": "another", "format": 1}', "x")
