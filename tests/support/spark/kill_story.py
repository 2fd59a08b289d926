"""The story that `test_spark_kill_story.py` tells Spark: what is in its topics, and what has to come out.

Orders, some of them sent twice, are joined with their payments and with a table of users; and counted by
minute and country. Here is the same in plain Python, over lists.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from support.spark.topics import NINE_MS, Sent, contents, make, send

ORDERS, PAYMENTS, USERS = "orders", "payments", "users"
PAID, TOTALS = "paid", "totals"
PARTITIONS = 2
COUNTRIES = ("de", "fr", "it")
PAID_WITHIN_S = 60
"""A payment that comes later does not count."""
DELAY_S = 90
"""How late messages may be. None is later: what Spark drops depends on where its batches end."""
BEGIN_S = NINE_MS // 1000
OFFSETS_PER_TRIGGER = 60
"""As many seconds of the story, or fewer."""
END_S = BEGIN_S + 86_400
"""The time of the last orders, which close every window of the story."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Story:
    seed: int
    orders: int

    def tell(self, bootstrap: str) -> None:
        """Make the topics, and send everything."""
        make(bootstrap, **dict.fromkeys((ORDERS, PAYMENTS, USERS, PAID, TOTALS), PARTITIONS))
        for topic, rows in ((ORDERS, self.sent_orders), (PAYMENTS, self.payments), (USERS, self.users)):
            send(bootstrap, topic, _messages(rows))

    @cached_property
    def sent_orders(self) -> list[Row]:
        """By time, a second apart; every fifth again a little later, as from a producer that tries again."""
        chance = random.Random(self.seed)
        rows: list[Row] = [
            {
                "id": n,
                "user": f"u{chance.randrange(12)}",
                "amount": chance.randrange(1, 100),
                "at": BEGIN_S + n,
            }
            for n in range(self.orders)
        ]
        again = [(row["at"] + chance.randrange(1, 20), row) for row in rows if chance.random() < 0.2]
        by_arrival = sorted([(row["at"], row) for row in rows] + again, key=lambda pair: pair[0])
        return [row for _, row in by_arrival] + _ends()

    @cached_property
    def payments(self) -> list[Row]:
        """Of most orders; some come too late, and some orders are paid in two parts."""
        chance = random.Random(self.seed + 1)
        rows = [
            {
                "of": n,
                "paid": chance.randrange(1, 100),
                "at": BEGIN_S + n + chance.randrange(2 * PAID_WITHIN_S),
            }
            for n in range(self.orders)
            for _ in range(chance.choice((0, 1, 1, 1, 2)))
        ]
        return sorted(rows, key=lambda row: int(row["at"]))

    @property
    def users(self) -> list[Row]:
        """Of some users nothing is known."""
        return [{"name": f"u{n}", "country": COUNTRIES[n % 3]} for n in range(10)]

    # -- what has to come out ---------------------------------------------------------------------------

    def paid(self) -> list[Row]:
        countries, orders = self._countries(), self._orders()
        return _sorted(
            {
                "id": payment["of"],
                "country": countries.get(orders[payment["of"]]["user"]),
                "paid": payment["paid"],
            }
            for payment in self.payments
            if payment["of"] in orders and 0 <= payment["at"] - orders[payment["of"]]["at"] <= PAID_WITHIN_S
        )

    def totals(self) -> list[Row]:
        countries, numbers, amounts = self._countries(), Counter[Any](), defaultdict[Any, int](int)
        for order in self._orders().values():
            group = order["at"] // 60, countries.get(order["user"])
            numbers[group] += 1
            amounts[group] += order["amount"]
        return _sorted(
            {"minute": minute, "country": country, "orders": number, "amount": amounts[minute, country]}
            for (minute, country), number in numbers.items()
        )

    def _orders(self) -> dict[int, Row]:
        return {row["id"]: row for row in self.sent_orders if row["id"] >= 0}

    def _countries(self) -> dict[str, str]:
        return {row["name"]: row["country"] for row in self.users}


def found(bootstrap: str, topic: str) -> list[Row]:
    """What is committed."""
    return _sorted(json.loads(message.value or b"") for message in contents(bootstrap, topic))


def _ends() -> list[Row]:
    """More than one batch: what the first moves on, the watermark, counts from the second on."""
    count = 2 * OFFSETS_PER_TRIGGER
    return [{"id": -1 - n, "user": "nobody", "amount": 0, "at": END_S} for n in range(count)]


def _messages(rows: list[Row]) -> list[Sent]:
    return [
        Sent(json.dumps(row).encode(), partition=n % PARTITIONS, timestamp_ms=NINE_MS)
        for n, row in enumerate(rows)
    ]


def _sorted(rows: Any) -> list[Row]:
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))
