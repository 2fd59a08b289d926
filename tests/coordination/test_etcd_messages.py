"""What is sent to etcd's gateway is JSON, whatever is in the keys and values."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode

from hypothesis import given
from hypothesis import strategies as st

from forebay.coordination.etcd.messages import has_put, txn_request
from forebay.coordination.store import Compare, Delete, Put

KEYS = st.text(min_size=1, max_size=20).map(lambda text: text.encode(errors="ignore").decode() or "k")
REVISIONS = st.integers(0, 2**62)


def bytes_of(text: str) -> bytes:
    return b64decode(text, validate=True)


@given(
    st.lists(st.tuples(KEYS, REVISIONS, st.booleans()), max_size=4),
    st.lists(st.tuples(KEYS, st.binary(max_size=400), REVISIONS), max_size=4),
    st.lists(KEYS, max_size=4),
)
def test_a_transaction_says_what_it_was_made_of(
    compared: list[tuple[str, int, bool]], put: list[tuple[str, bytes, int]], deleted: list[str]
) -> None:
    compares = [(Compare.created if new else Compare.unchanged)(key, number) for key, number, new in compared]
    puts = [Put(key=key, value=value, lease=lease) for key, value, lease in put]
    text = txn_request(compares, puts, [Delete(key=key) for key in deleted])
    request = json.loads(text)
    assert [
        (bytes_of(each["key"]).decode(), int(each.get("create_revision", each.get("mod_revision"))))
        for each in request["compare"]
    ] == [(key, number) for key, number, _ in compared]
    assert [each["target"] for each in request["compare"]] == [
        "CREATE" if new else "MOD" for _, _, new in compared
    ]
    done = [next(iter(each.items())) for each in request["success"]]
    assert [
        (bytes_of(what["key"]).decode(), bytes_of(what["value"]), int(what["lease"]))
        for kind, what in done
        if kind == "request_put"
    ] == put
    assert [what["key"] for kind, what in done if kind == "request_delete_range"] == [
        b64encode(key.encode()).decode() for key in deleted
    ]
    assert has_put(text) == bool(put)
