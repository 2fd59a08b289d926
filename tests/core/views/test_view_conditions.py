"""The SQL of views, expression by expression: what is true, what is false, and what is unknown."""

from __future__ import annotations

import pytest

from support.machines.view_records import NOW_MS, lets_through, record, truth

ORDER = record(
    {
        "id": 7,
        "amount": 120.5,
        "region": "eu",
        "note": None,
        "paid": True,
        "big": 9007199254740993,
        "huge": 18446744073709551615,
        "customer": {"name": "Ada Lovelace", "tags": ["new", "vip"]},
        "items": [{"sku": "a/1", "count": 2}, {"sku": 'b"2', "count": 0}],
        "placed at": "2023-11-14T22:13:20Z",
        "1st": "é",
        "from": "web",
    },
    key=b"order-7",
    headers=[("region", b"us"), ("region", b"eu"), ("empty", None), ("raw", b"\xff")],
    offset=41,
)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        # comparisons
        ("value.id = 7", True),
        ("value.id = 7.0", True),
        ("7 = value.id", True),
        ("8 > value.id", True),
        ("value.id <> 7", False),
        ("value.id != 8", True),
        ("value.amount > 120", True),
        ("value.amount <= 120.5", True),
        ("value.amount < -1e3", False),
        ("value.region = 'eu'", True),
        ("value.region = 'EU'", False),
        ("value.region < 'ew'", True),
        ("value.paid = true", True),
        ("value.paid", True),
        ("NOT value.paid", False),
        ("value.big = 9007199254740993", True),
        ("value.big = 9007199254740992", False),
        ("value.huge = 18446744073709551615", True),
        ("value.huge > 18446744073709551614", True),
        ("value.huge + 1 > value.huge - 1", True),
        ("CAST(CAST(value.huge AS VARCHAR) AS BIGINT) = value.huge", True),
        ("CAST('18446744073709551616' AS DOUBLE) > value.huge", True),
        ("CAST(value.huge * 2 AS BIGINT) IS NULL", True),
        ("-9223372036854775808 < -9223372036854775807", True),
        # types are not mixed
        ("value.id = '7'", None),
        ("value.id < 'a'", None),
        ("value.paid = 1", None),
        ("value.id = true", None),
        ("value.customer = 'x'", None),
        ("value.customer = value.customer", None),
        ("value.region", None),
        ("value.id", None),
        # NULL
        ("value.note = 'x'", None),
        ("value.missing = 1", None),
        ("value.note IS NULL", True),
        ("value.missing IS NULL", True),
        ("value.missing IS NOT NULL", False),
        ("value.customer IS NULL", False),
        ("value.missing = 1 AND value.id = 7", None),
        ("value.missing = 1 AND value.id = 8", False),
        ("value.missing = 1 OR value.id = 7", True),
        ("value.missing = 1 OR value.id = 8", None),
        ("NOT (value.missing = 1)", None),
        ("NULL", None),
        ("value.id = NULL", None),
        ("(value.missing = 1) IS TRUE", False),
        ("(value.missing = 1) IS NOT TRUE", True),
        ("value.paid IS TRUE", True),
        ("value.paid IS FALSE", False),
        ("value.missing IS DISTINCT FROM 1", True),
        ("value.missing IS NOT DISTINCT FROM NULL", True),
        ("value.id IS DISTINCT FROM '7'", True),
        ("value.id IS NOT DISTINCT FROM 7", True),
        # paths
        ("value.customer.name = 'Ada Lovelace'", True),
        ("value['customer']['name'] LIKE 'Ada%'", True),
        ("value.customer.tags[1] = 'vip'", True),
        ("value.customer.tags[-1] = 'vip'", True),
        ("value.customer.tags[2] IS NULL", True),
        ("value.items[0].count = 2", True),
        ("value.items[0].sku = 'a/1'", True),
        ("""value.items[1].sku = 'b"2'""", True),
        ("value.items.sku IS NULL", True),
        ("value.region.x.y.z.deeper.still IS NULL", True),
        ("value['placed at'] IS NOT NULL", True),
        ('value."placed at" IS NOT NULL', True),
        ("value['1st'] = 'é'", True),
        ("value.from = 'web'", True),
        ("value[0] IS NULL", True),
        ("VALUE.id = 7", True),
        ("value.ID IS NULL", True),
        # the other columns
        ("key = 'order-7'", True),
        ("key LIKE 'order-_'", True),
        ("headers['region'] = 'eu'", True),
        ("headers['region'] = 'us'", False),
        ("headers['empty'] IS NULL", True),
        ("headers['none'] IS NULL", True),
        ("headers['raw'] = '\N{REPLACEMENT CHARACTER}'", True),
        ("topic = 'orders' AND partition = 3 AND offset = 41", True),
        (f"timestamp = {NOW_MS}", True),
        ("timestamp > TIMESTAMP '2023-11-14 22:13:19'", True),
        ("timestamp = now()", True),
        ("timestamp > now() - INTERVAL '1 hour'", True),
        ("timestamp > current_timestamp - INTERVAL 1 DAY", True),
        # LIKE
        ("value.region LIKE 'e%'", True),
        ("value.region LIKE '%u'", True),
        ("value.region LIKE '_u'", True),
        ("value.region LIKE 'E_'", False),
        ("value.region ILIKE 'E_'", True),
        (
            "'\u03a4\u0391\u03a3\u0391' ILIKE '\u03a4\u0391\u03a3%'",
            True,
        ),  # a sigma inside
        ("'\u03a4\u0391\u03a3' ILIKE '\u03c4\u03b1\u03c3'", True),
        ("value.region NOT LIKE 'x%'", True),
        ("value.missing NOT LIKE 'x%'", None),
        ("value.id LIKE '7'", None),
        ("value.customer.name LIKE '%da%lace'", True),
        ("value.customer.name LIKE '%lace%lace'", False),
        ("value.items[0].sku LIKE 'a!/_' ESCAPE '!'", True),
        ("'50%' LIKE '50!%' ESCAPE '!'", True),
        ("'500' LIKE '50!%' ESCAPE '!'", False),
        # IN, BETWEEN
        ("value.region IN ('us', 'eu')", True),
        ("value.region NOT IN ('us', 'asia')", True),
        ("value.region NOT IN ('us', NULL)", None),
        ("value.region IN ('us', NULL)", None),
        ("value.region IN ('eu', NULL)", True),
        ("value.id IN (1, 7.0)", True),
        ("value.id IN ('7')", None),
        ("value.paid IN (1)", None),
        ("value.id IN (value.items[0].count, value.amount)", False),
        ("value.id IN (1, value.missing)", None),
        ("value.id BETWEEN 7 AND 8", True),
        ("value.id NOT BETWEEN 7 AND 8", False),
        ("value.id BETWEEN value.missing AND 6", False),
        # CASE and functions
        ("CASE WHEN value.id > 5 THEN true ELSE false END", True),
        ("CASE value.region WHEN 'us' THEN 1 WHEN 'eu' THEN 2 END = 2", True),
        ("CASE WHEN value.missing = 1 THEN 1 END IS NULL", True),
        ("coalesce(value.missing, value.note, 'x') = 'x'", True),
        ("nullif(value.region, 'eu') IS NULL", True),
        ("nullif(value.id, '7') = 7", True),
        ("nullif(value.id, 7.0) IS NULL", True),
        ("nullif(value.paid, 1) IS NULL", False),
        ("lower('ÄB') = 'äb' AND upper(value.region) = 'EU'", True),
        ("length(value.region) = 2 AND length(value.items) = 2", True),
        ("length(value.id) IS NULL", True),
        ("starts_with(value.region, 'e') AND ends_with(value.region, 'u')", True),
        ("contains(value.customer.name, 'Love')", True),
        ("substring(value.region, 2, 1) = 'u' AND substring(value.region, 2) = 'u'", True),
        ("trim('  x ') = 'x'", True),
        ("abs(-3) = 3 AND floor(-2.5) = -3 AND ceil(2.1) = 3", True),
        ("round(2.5) = 3 AND round(-2.5) = -3 AND round(1.25, 1) = 1.3", True),
        ("round(0.49999999999999994) = 0 AND round(4503599627370497.0) = 4503599627370497", True),
        ("regexp_like(value.customer.name, '^A.*e$')", True),
        # arithmetic
        ("value.id + 1 = 8 AND value.id - 8 = -1 AND value.id * 2 = 14", True),
        ("value.id / 2 = 3.5", True),
        ("value.id / 0 IS NULL AND value.id % 0 IS NULL", True),
        ("value.id % 4 = 3 AND -7 % 4 = -3 AND 7.5 % 2 = 1.5", True),
        ("-value.id = -7", True),
        ("value.region + 1 IS NULL", True),
        ("value.paid + 1 IS NULL", True),
        ("9223372036854775807 + 1 > 9223372036854775806", True),
        ("1e308 * 10 IS NULL", True),
        ("value.region || '-' || value.id = 'eu-7'", True),
        ("value.region || value.missing IS NULL", True),
        # casts
        ("CAST('12' AS BIGINT) = 12 AND CAST(' -3.9 ' AS INT) = -3", True),
        ("CAST(value.region AS BIGINT) IS NULL AND TRY_CAST('x' AS BIGINT) IS NULL", True),
        ("CAST(value.paid AS INT) = 1", True),
        ("CAST('1e3' AS DOUBLE) = 1000 AND TRY_CAST('nan' AS DOUBLE) IS NULL", True),
        ("CAST('TRUE' AS BOOLEAN) AND NOT CAST(0 AS BOOLEAN)", True),
        ("CAST(value.id AS VARCHAR) = '7' AND CAST(value.paid AS VARCHAR) = 'true'", True),
        ("""CAST(value.customer.tags AS VARCHAR) = '["new","vip"]'""", True),
        ("value.id::varchar = '7'", True),
        (f"CAST(value['placed at'] AS TIMESTAMP) = {NOW_MS}", True),
        (f"CAST('2023-11-14T23:13:20+01:00' AS TIMESTAMP) = {NOW_MS}", True),
        ("TRY_CAST('2023-13-01' AS TIMESTAMP) IS NULL", True),
        ("CAST(timestamp AS DATE) = DATE '2023-11-14'", True),
        ("CAST(timestamp - timestamp - 9223372036854775808 AS DATE) IS NULL", True),
        ("'it''s' = 'it''s'", True),
        ("value.id = 7 -- a comment", True),
    ],
)
def test_a_condition_is_true_false_or_unknown(where: str, expected: bool | None) -> None:
    if "--" in where:
        assert lets_through(where, ORDER) is expected
    else:
        assert truth(where, ORDER) is expected


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("key = 'k'", True),
        ("value IS NULL", True),
        ("value IS NOT NULL", False),
        ("value.x = 1", None),
        ("value.x IS NULL", True),
    ],
)
def test_the_value_of_a_tombstone_is_null(where: str, expected: bool | None) -> None:
    assert truth(where, record(None)) is expected


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("value.x = 1", True),
        ("value.x = 'abc' AND key = 'k'", True),
        ("value.x = 'abc' AND key = 'other'", False),
        ("value.x = 1 OR key = 'other'", True),
        ("value.x IS NOT NULL", True),
    ],
)
def test_kept_tombstones_answer_only_to_what_does_not_use_the_value(where: str, expected: bool) -> None:
    assert lets_through(where, record(None), keep_tombstones=True) is expected


@pytest.mark.parametrize(
    "value", [b"", b"{", b"nope", b'{"a": 1} x', b'{"a": NaN}', b'"\xff"', b'{"a": "\\ud800"}']
)
def test_values_that_are_no_json_are_not_delivered_where_they_are_used(value: bytes) -> None:
    one = record(value)
    assert lets_through("key = 'k'", one)
    assert not lets_through("value.a = 1", one)
    assert not lets_through("value.a IS NULL", one)
    assert not lets_through("key = 'k' OR value.a = 1", one)


@pytest.mark.parametrize("value", [1, 1.5, "text", True, None, [], [1], [{"a": 1}], {}, {"a": {}}])
def test_documents_of_any_shape_have_no_field_that_they_do_not_have(value: object) -> None:
    assert truth("value.a.b[0] = 1", record(value)) is None


def test_a_value_may_be_one_text() -> None:
    assert lets_through("value = 'paid'", record("paid"))
    assert lets_through("value[0] = 5 AND length(value) = 2", record([5, 6]))


@pytest.mark.parametrize(
    "where",
    [
        "floor(value.a) * ceil(value.a) IS NULL",
        "floor(value.a) + floor(value.a) IS NULL",
        "value.a * 10 IS NULL",
        "floor(value.a) = value.a AND ceil(-value.a) = -value.a",
    ],
)
def test_numbers_that_become_too_large_are_null_and_no_error(where: str) -> None:
    assert truth(where, record({"a": 1.5e308})) is True
