"""Stories whose brokers talk to each other over TLS: the same faults, on encrypted connections.

The bytes of TLS are random, so these stories do not run twice in the same way.
"""

from __future__ import annotations

import pytest

from forebay.broker.tls.stream import TlsStream
from forebay.local.certificates import Authority
from forebay.sim import broker_settings, simulation
from forebay.sim.simulation import Story, simulate
from forebay.sim.world.virtual_time import World
from support.brokers.loop_guard import loops_guarded

_END_OF_KEY = "-----END PRIVATE KEY-----\n"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_brokers_live_through_faults_over_tls(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    authority, own_settings = Authority.create(), broker_settings.own_settings

    def with_tls(world: World, number: int) -> dict[str, str]:
        host = f"node{number}"
        key, chain = authority.issue(host, [host]).decode().split(_END_OF_KEY)
        return {
            **own_settings(world, number),
            "listeners": f"PLAINTEXT://{host}:9092,INTERNAL://{host}:9093",
            "listener.security.protocol.map": "INTERNAL:SSL",
            "inter.broker.listener.name": "INTERNAL",
            "ssl.keystore.key": key + _END_OF_KEY,
            "ssl.keystore.certificate.chain": chain,
            "ssl.truststore.certificates": authority.pem.decode(),
            "ssl.client.auth": "required",
        }

    secured = 0
    finish = TlsStream._end_wait

    def count(stream: TlsStream) -> None:
        nonlocal secured
        secured += 1
        finish(stream)

    monkeypatch.setattr(simulation, "own_settings", with_tls)
    monkeypatch.setattr(TlsStream, "_end_wait", count)
    with loops_guarded():
        ending = simulate(Story(seed=seed))
    assert ending.breach is None, ending
    assert secured > 10
