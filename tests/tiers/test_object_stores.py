"""Every object store keeps the promises of the port: a directory, and S3 as moto's server speaks it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from forebay.tiers import local_directory
from forebay.tiers.local_directory import LocalDirectory
from forebay.tiers.object_store import ABSENT, Conflict, Missing, ObjectStore, ObjectStoreError
from forebay.tiers.opening import open_store
from support.spark.object_store import ObjectStore as S3Server
from support.spark.object_store import running_object_store

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

MIB = 1 << 20


@pytest.fixture(scope="module")
def s3_urls() -> Iterator[tuple[str, dict[str, str]]]:
    with running_object_store() as server:
        yield (
            server.location(),
            {
                "endpoint": server.environment()["AWS_ENDPOINT_URL"],
                "access_key_id": "test",
                "secret_access_key": "test",
                "region": "us-east-1",
            },
        )


@pytest.fixture(params=["directory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "directory":
        return open_store(str(tmp_path / "store"))
    url, options = request.getfixturevalue("s3_urls")
    return open_store(f"{url}/{tmp_path.name}", options)


def test_what_was_put_can_be_read_whole_and_in_ranges(store: ObjectStore) -> None:
    store.put("a/b", b"0123456789")
    assert store.get("a/b").data == b"0123456789"
    assert store.get_range("a/b", 3, 4) == b"3456"


def test_a_disk_that_takes_a_part_of_what_it_is_given_gets_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one does that is about to run full. What is missing at an object's end would be lost in silence."""

    class ShortFile(FileIO):
        def write(self, data: Any) -> int:
            return super().write(memoryview(data)[:3])

    monkeypatch.setattr(local_directory, "FileIO", ShortFile)
    store = open_store(str(tmp_path / "store"))
    store.put("a/b", b"0123456789")
    store.upload("a/c", [b"01234", b"56789"])
    assert store.get("a/b").data == store.get("a/c").data == b"0123456789"


def test_a_missing_object_is_an_error_of_its_own(store: ObjectStore) -> None:
    with pytest.raises(Missing):
        store.get("nothing")
    with pytest.raises(Missing):
        store.get_range("nothing", 0, 1)
    store.delete("nothing")


def test_a_range_beyond_the_end_is_an_error(store: ObjectStore) -> None:
    store.put("short", b"123")
    with pytest.raises(ObjectStoreError):
        store.get_range("short", 1, 10)


def test_only_one_of_two_writers_creates_an_object(store: ObjectStore) -> None:
    store.put("manifest", b"first", replaces=ABSENT)
    with pytest.raises(Conflict):
        store.put("manifest", b"second", replaces=ABSENT)
    assert store.get("manifest").data == b"first"


def test_only_one_of_two_writers_replaces_a_version(store: ObjectStore) -> None:
    tag = store.put("manifest", b"first", replaces=ABSENT)
    assert tag == store.get("manifest").tag
    store.put("manifest", b"second", replaces=tag)
    with pytest.raises(Conflict):
        store.put("manifest", b"third", replaces=tag)
    assert store.get("manifest").data == b"second"


def test_an_object_that_is_gone_is_not_replaced(store: ObjectStore) -> None:
    tag = store.put("manifest", b"first", replaces=ABSENT)
    store.delete("manifest")
    with pytest.raises((Conflict, Missing)):
        store.put("manifest", b"second", replaces=tag)
    with pytest.raises(Missing):
        store.get("manifest")


def test_a_large_object_is_uploaded_from_parts(store: ObjectStore) -> None:
    parts = [bytes([number]) * (1 << 20) for number in range(20)]
    store.upload("large", iter(parts))
    assert store.get_range("large", 5 << 20, 4) == b"\5\5\5\5"
    assert store.get_range("large", (20 << 20) - 1, 1) == bytes([19])


def test_an_upload_that_fails_leaves_no_object(store: ObjectStore) -> None:
    def parts() -> Iterator[bytes]:
        yield b"x" * (9 << 20)
        raise ObjectStoreError("the disk failed")

    with pytest.raises(ObjectStoreError):
        store.upload("torn", parts())
    with pytest.raises(Missing):
        store.get("torn")
    assert list(store.list("torn")) == []


def test_what_a_process_leaves_that_ends_while_it_writes_goes_with_the_object(tmp_path: Path) -> None:
    store = LocalDirectory(str(tmp_path))
    left = [
        tmp_path / "t" / "0" / name
        for name in ("a.segment.part7-aa", "b.segment.part7-bb", "m.json.part8-cc")
    ]
    store.put("t/0/m.json", b"1")
    for path in left:
        path.write_bytes(b"half")
    assert [each.key for each in store.list("")] == ["t/0/m.json"]
    store.delete("t/0/a.segment")
    assert [path.exists() for path in left] == [False, True, True], "others may be under way"
    store.delete("t/0/m.json")
    assert list(tmp_path.iterdir()) == [], "the last object has gone, and all that was beside it"


def test_a_folder_with_objects_keeps_what_is_under_way_there(tmp_path: Path) -> None:
    store = LocalDirectory(str(tmp_path))
    for key in ("t/0/a", "t/0/b", "t/1/c"):
        store.put(key, b"1")
    under_way = tmp_path / "t" / "0" / "d.part7-aa"
    under_way.write_bytes(b"half")
    store.delete("t/0/a")
    store.delete("t/1/c")
    assert under_way.exists() and [each.key for each in store.list("")] == ["t/0/b"]


def test_objects_are_listed_by_the_beginning_of_their_keys(store: ObjectStore) -> None:
    for key in ("topics/1/manifest", "topics/1/0/a", "topics/12/b", "other"):
        store.put(key, b"123")
    found = {listed.key: listed.size for listed in store.list("topics/1/")}
    assert found == {"topics/1/manifest": 3, "topics/1/0/a": 3}


def test_of_many_writers_at_once_each_change_counts_once(store: ObjectStore) -> None:
    store.put("count", b"0", replaces=ABSENT)

    def add() -> None:
        added = 0
        while added < 5:
            data, tag = store.get("count")
            try:
                store.put("count", str(int(data) + 1).encode(), replaces=tag)
                added += 1
            except Conflict:
                continue

    threads = [Thread(target=add) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.get("count").data == b"15"


@pytest.mark.parametrize("url", ["", "ftp://host/x", "s3://key:secret@bucket/prefix"])
def test_a_place_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(ObjectStoreError):
        open_store(url)


class FailingParts:
    """Between an S3 server and its clients: answers uploads of one part with 503, so many times."""

    def __init__(self, server: S3Server, failures: int) -> None:
        self._application = server.gate._application
        self._left = failures
        self.seen: list[str] = []
        """The method and the first parameter of each request."""

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        query = environ["QUERY_STRING"].partition("&")[0]
        self.seen.append(f"{environ['REQUEST_METHOD']} {query.partition('=')[0]}")
        if query == "partNumber=2" and self._left:
            self._left -= 1
            environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
            start_response("503 Slow Down", [("Content-Type", "text/plain")])
            return [b"slow down"]
        return self._application(environ, start_response)


@contextmanager
def failing(server: S3Server, failures: int) -> Iterator[tuple[FailingParts, ObjectStore]]:
    parts = FailingParts(server, failures)
    server.gate._application, before = parts, server.gate._application
    options = {
        "endpoint": server.environment()["AWS_ENDPOINT_URL"],
        "access_key_id": "test",
        "secret_access_key": "test",
        "region": "us-east-1",
    }
    try:
        yield parts, open_store(server.location(), options)
    finally:
        server.gate._application = before


def test_a_part_that_fails_is_sent_again_and_the_others_are_not() -> None:
    with running_object_store() as server, failing(server, 5) as (parts, store):
        store.upload("large", (bytes([number]) * MIB for number in range(30)))
        assert parts.seen.count("PUT partNumber") == 4 + 5, "30 MiB are four parts"
        assert parts.seen.count("POST uploads") == 1
        assert store.get_range("large", 20 * MIB - 1, 2) == bytes([19, 20])


def test_an_upload_that_fails_leaves_no_parts() -> None:
    def broken() -> Iterator[bytes]:
        yield from (bytes(MIB) for _ in range(20))
        raise OSError("the local disk is damaged")

    with running_object_store() as server, failing(server, 0) as (parts, store):
        with pytest.raises(ObjectStoreError):
            store.upload("broken", broken())
        assert parts.seen[-1] == "DELETE uploadId", "it was aborted"
        with pytest.raises(Missing):
            store.get("broken")
