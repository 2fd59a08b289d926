"""The blocking connection of commands and of Spark's tasks: it owns its socket from the beginning."""

from __future__ import annotations

from typing import NoReturn

import pytest

from forebay.errors import ForebayError
from forebay.transport.blocking import BlockingConnection
from forebay.transport.connecting import connect
from forebay.transport.security import security
from support.brokers.broker_process import BrokerProcess


def test_a_login_that_cannot_begin_leaves_no_socket_open(broker: BrokerProcess) -> None:
    """The server that gives out tokens may be down, for example."""

    def no_token() -> NoReturn:
        raise ForebayError("there is no token")

    host, _, port = broker.bootstrap.rpartition(":")
    connected = connect(host, int(port), security({}), 60)
    with pytest.raises(ForebayError, match="there is no token"):
        BlockingConnection(connected, broker.bootstrap, client_id="t", timeout_s=60, new_login=no_token)
    assert connected.fileno() == -1, "the socket was left to the garbage collector"
