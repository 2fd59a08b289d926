"""What protection costs: TLS beside plain connections of the same broker, and access rules beside none."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable

from bench import rounds
from bench.client import Client, expect_success
from bench.frames import B200_BATCH, CLIENT_ID, DEEP_BLOB_BYTES, numbered, produce_frame
from bench.load import Measure, Rounds, Stream, run_load
from bench.report import Figure
from bench.rounds import ROUND_S, Broker, fresh_topic
from bench.server import ForebayServer
from bench.suite import Suite
from bench.tls import ForebayWithTls
from forebay.core.acls.bindings import Operation, PatternType, Permission, ResourceType
from forebay.wire.messages.create_acls import AclCreation, CreateAclsRequest

TLS_LOADS: dict[str, Callable[[Broker, int], Measure]] = {
    "produce 1 MB": rounds.produce_mb,
    "fetch 1 MB": rounds.fetch_mb,
    "produce 16 KB": rounds.produce_16kb,
}
RULES_AT_MOST = {"produce 200 B": 1.03}
"""What a request may cost with access rules, beside one without. Producers send the same header again and
again; the other load shows what the check costs where they do not."""
RULE_PAIRS = 3
"""With and without rules, in turns, in each round, and each round with new processes: two processes of the
same broker differ by more than the check costs."""
OTHER_RULES = 1000
RULE_SETTINGS = (
    "authorizer.class.name=acl",
    "super.users=User:nobody",
    "allow.everyone.if.no.acl.found=true",
)
"""Everything is allowed that no rule is about, so that anybody may add the rules."""
ACLS_VERSION = 3


def security_figures(suite: Suite) -> list[Figure]:
    return [*_tls_figures(suite), *_rule_figures(suite)]


# -- TLS ---------------------------------------------------------------------------------------------------


def _tls_figures(suite: Suite) -> list[Figure]:
    plain: dict[str, Rounds] = defaultdict(Rounds)
    secured: dict[str, Rounds] = defaultdict(Rounds)
    with ForebayWithTls(suite.scratch, "tls") as server:
        for _ in suite.each_round("TLS"):
            for name, load in TLS_LOADS.items():
                plain[name].append(load(server, 1))
                secured[name].append(load(server.over_tls, 1))
    figures = []
    for name in TLS_LOADS:
        for title, unit, attribute in (
            (name, "MB/s", "mb_per_s"),
            (f"{name}, broker CPU", "s/GB", "cpu_s_per_gb"),
        ):
            figures.append(
                Figure(
                    group="TLS, 1 connection",
                    name=title,
                    value=secured[name].median(attribute),
                    unit=unit,
                    limit=plain[name].median(attribute),
                    limit_name="PLAINTEXT",
                )
            )
    return figures


# -- access rules ------------------------------------------------------------------------------------------


def _rule_figures(suite: Suite) -> list[Figure]:
    loads: dict[str, Callable[[Broker], Measure]] = {
        "produce 200 B": lambda server: rounds.produce_200b_deep(server, 1),
        "produce 200 B, each request decoded": produce_varied,
    }
    free: dict[str, Rounds] = defaultdict(Rounds)
    ruled: dict[str, Rounds] = defaultdict(Rounds)
    for _ in suite.each_round("access rules"):
        with (
            ForebayServer(suite.scratch, "no-rules") as without,
            ForebayServer(suite.scratch, "rules", *RULE_SETTINGS) as with_rules,
        ):
            add_rules(with_rules)
            for name, load in loads.items():
                for _ in range(RULE_PAIRS):
                    free[name].append(load(without))
                    ruled[name].append(load(with_rules))
    return [
        figure
        for name in loads
        for figure in _cost_of_rules(name, free[name], ruled[name], RULES_AT_MOST.get(name))
    ]


def _cost_of_rules(name: str, free: Rounds, ruled: Rounds, at_most: float | None) -> list[Figure]:
    """The cost of a request, and the median of the ratios of pairs: each pair has the same neighbours."""
    group = f"access rules ({OTHER_RULES:,} others)"
    costs = "cpu_us_per_request"
    ratios = [getattr(pair[0], costs) / getattr(pair[1], costs) for pair in zip(ruled, free, strict=True)]
    return [
        Figure(group=group, name=f"{name}, broker CPU", value=ruled.median(costs), unit="µs/request"),
        Figure(
            group=group,
            name=f"{name}, beside no authorizer",
            value=statistics.median(ratios),
            unit="x",
            at_most=at_most,
            judged="value",
        ),
    ]


def add_rules(server: Broker) -> None:
    """What lets anybody use the topics of rounds, and many rules for others."""
    others = [rule(f"other-{n}", f"User:somebody-{n % 100}", PatternType.LITERAL) for n in range(OTHER_RULES)]
    add(server, [rule("bench-", "User:ANONYMOUS"), *others])


def add(server: Broker, rules: list[AclCreation]) -> None:
    with Client(server.address) as client:
        answer = client.ask(CreateAclsRequest(creations=rules), ACLS_VERSION)
    for result in answer.results:
        expect_success("adding a rule", result.error_code)


def rule(
    topic: str, principal: str, pattern: PatternType = PatternType.PREFIXED, *, allowed: bool = True
) -> AclCreation:
    return AclCreation(
        resource_type=ResourceType.TOPIC,
        resource_name=topic,
        resource_pattern_type=pattern,
        principal=principal,
        host="*",
        operation=Operation.ALL,
        permission_type=Permission.ALLOW if allowed else Permission.DENY,
    )


def produce_varied(server: Broker) -> Measure:
    """Requests of which none begins as the one before: the fast path that knows such ones is not taken, so
    each is decoded, and looked at by the guard."""
    with fresh_topic(server) as (_, topic):
        frame = produce_frame(topic, B200_BATCH)
        other = frame.replace(CLIENT_ID.encode(), CLIENT_ID.upper().encode(), 1)
        count = DEEP_BLOB_BYTES // len(frame) // 2
        pairs = zip(numbered(frame, count), numbered(other, count), strict=True)
        stream = Stream(
            blobs=[b"".join(each for pair in pairs for each in pair)],
            requests_per_blob=2 * count,
            payload_bytes_per_blob=2 * count * len(B200_BATCH),
            window=2,
            seconds=ROUND_S,
        )
        return run_load(server, [stream])
