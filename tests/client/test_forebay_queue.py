"""Queues on a real broker: what is delivered again, to whom, and what the broker has persisted."""

from __future__ import annotations

import time
from collections.abc import Callable

import confluent_kafka
import pytest

from forebay.client import Admin, ClientError, LockLost, Queue, QueueEmpty, QueueMessage
from forebay.client.queues.group_settings import QueueSettings, changes
from forebay.errors import ConfigError
from forebay.testing import Broker

WAIT = 60.0
"""For what must come: long, because the machine may be busy."""
NOTHING = 1.0
"""For what must not come."""

OpenQueue = Callable[..., Queue]


@pytest.fixture
def open_queue(forebay_broker: Broker, forebay_topic: str) -> OpenQueue:
    def make(**options: object) -> Queue:
        return Queue(forebay_broker.bootstrap_servers, forebay_topic, group=forebay_topic, **options)  # type: ignore[arg-type]

    return make


def send(queue: Queue, count: int) -> None:
    for number in range(count):
        queue.send(str(number))
    queue.flush()


def text(message: QueueMessage) -> str:
    return (message.value or b"").decode()


def rest(queue: Queue, count: int = 0) -> list[str]:
    """The next ones that must come, and what comes beside them."""
    return [text(message) for message in received(queue, count)] + [
        text(message) for message in queue.messages(NOTHING)
    ]


def received(queue: Queue, count: int) -> list[QueueMessage]:
    found = []
    for _ in range(count):
        with queue.receive(WAIT) as message:
            found.append(message)
    return found


# -- blocks ------------------------------------------------------------------------------------------------


def test_a_message_has_what_was_sent(open_queue: OpenQueue) -> None:
    with open_queue() as queue:
        sent = queue.send_and_wait("resize", key="cat.png", headers={"width": "100"})
        with queue.receive(WAIT) as message:
            assert (message.value, message.key, message.header("width")) == (b"resize", b"cat.png", b"100")
            assert (message.offset, message.delivery_count) == (sent.offset, 1)
            assert 20 < message.lock_seconds_left <= 30


def test_accepted_means_persisted_before_the_block_ends(open_queue: OpenQueue) -> None:
    with open_queue() as queue:
        send(queue, 2)
        with queue.receive(WAIT) as message:
            assert text(message) == "0"
        with open_queue() as other:  # while the first one is still a member
            assert rest(other, 1) == ["1"]


def test_an_exception_releases_the_message(open_queue: OpenQueue) -> None:
    with open_queue() as queue:
        send(queue, 1)
        with pytest.raises(ZeroDivisionError), queue.receive(WAIT):
            raise ZeroDivisionError
        with open_queue() as other, other.receive(WAIT) as message:
            assert (text(message), message.delivery_count) == ("0", 2)
        assert rest(queue) == []


def test_release_and_reject_inside_a_block(open_queue: OpenQueue) -> None:
    with open_queue() as queue:
        send(queue, 2)
        with queue.receive(WAIT) as message:
            message.release()
        with queue.receive(WAIT) as message:
            assert (text(message), message.delivery_count) == ("0", 2)
            message.reject("no such picture")
        assert rest(queue, 1) == ["1"]


def test_a_rejected_message_stays_rejected_when_the_block_then_fails(open_queue: OpenQueue) -> None:
    with open_queue() as queue:
        send(queue, 1)
        with pytest.raises(ZeroDivisionError), queue.receive(WAIT) as message:
            message.reject()
            raise ZeroDivisionError
        assert rest(queue) == []


def test_a_block_that_outlasts_its_lock_raises(open_queue: OpenQueue) -> None:
    with open_queue(lock_seconds=3) as queue, open_queue() as other:
        send(queue, 1)
        with pytest.raises(LockLost, match="lock_seconds"), queue.receive(WAIT) as message:
            with other.receive(WAIT) as again:
                assert (text(again), again.delivery_count) == ("0", 2)
            time.sleep(message.lock_seconds_left)
        assert rest(queue) == []


def test_the_error_of_a_block_wins_over_a_lost_lock(open_queue: OpenQueue) -> None:
    with open_queue(lock_seconds=3) as queue, open_queue() as other:
        send(queue, 1)
        with pytest.raises(ZeroDivisionError), queue.receive(WAIT):
            with other.receive(WAIT):
                pass
            raise ZeroDivisionError
        assert rest(queue) == []


def test_no_message_in_time(open_queue: OpenQueue) -> None:
    with open_queue() as queue, pytest.raises(QueueEmpty), queue.receive(0.2):
        raise AssertionError("there is no message")


# -- loops -------------------------------------------------------------------------------------------------


def test_asking_for_the_next_accepts_the_one_before(open_queue: OpenQueue) -> None:
    with open_queue() as queue:
        send(queue, 3)
        for message in queue:
            if text(message) == "1":
                break
        assert rest(queue, 2) == ["1", "2"]


def test_locks_are_for_one_message_at_a_time(open_queue: OpenQueue) -> None:
    """The messages were sent as one batch, which librdkafka alone would lock as a whole."""
    with open_queue() as queue, open_queue() as other:
        send(queue, 10)
        with queue.receive(WAIT) as first, other.receive(WAIT) as second:
            assert {text(first), text(second)} == {"0", "1"}


def test_messages_that_wait_for_too_long_are_delivered_again(open_queue: OpenQueue) -> None:
    with open_queue(lock_seconds=3, batch_max=10) as queue:
        send(queue, 4)
        with queue.receive(WAIT) as message:
            assert text(message) == "0"
            locked_until_s = message.lock_deadline_s
        time.sleep(max(0.0, locked_until_s - time.monotonic()))  # of those that wait in the queue, too
        again = [(text(message), message.delivery_count > 1) for message in received(queue, 3)]
        assert sorted(again) == [("1", True), ("2", True), ("3", True)]
        assert rest(queue) == []


def test_a_closed_queue_gives_back_what_waits_in_it(open_queue: OpenQueue) -> None:
    with open_queue(batch_max=10) as queue:
        send(queue, 4)
        with queue.receive(WAIT):
            pass
    with open_queue() as other:
        assert sorted(rest(other, 3)) == ["1", "2", "3"]


def test_one_message_at_a_time(open_queue: OpenQueue) -> None:
    with open_queue() as queue:
        send(queue, 2)
        with queue.receive(WAIT) as message:
            with pytest.raises(ClientError, match="still being handled"), queue.receive(WAIT):
                pass
            assert text(message) == "0"
        assert rest(queue, 1) == ["1"]


# -- the group's settings ----------------------------------------------------------------------------------


def test_arguments_become_settings_of_the_group(
    open_queue: OpenQueue, forebay_broker: Broker, forebay_topic: str
) -> None:
    options = {"lock_seconds": 2.5, "delivery_limit": 3, "retry_backoff_seconds": 90, "start": "latest"}
    with open_queue(**options) as queue, pytest.raises(QueueEmpty), queue.receive(0.1):
        pass
    config = Admin(forebay_broker.bootstrap_servers).group_config(forebay_topic)
    assert config["share.record.lock.duration.ms"] == "2500"
    assert config["share.delivery.count.limit"] == "3"
    assert config["forebay.share.retry.backoff.ms"] == "90000"
    assert config["forebay.share.retry.backoff.max.ms"] == "90000"
    assert config["share.auto.offset.reset"] == "latest"
    assert config["forebay.share.record.limit.enable"] == "true"


def test_a_message_is_given_up_at_the_delivery_limit(open_queue: OpenQueue) -> None:
    counts = []
    with open_queue(delivery_limit=2) as queue:
        send(queue, 1)
        for _ in range(2):
            with queue.receive(WAIT) as message:
                counts.append(message.delivery_count)
                message.release()
        assert rest(queue) == []
    assert counts == [1, 2]


def test_rejected_messages_become_dead_letters(
    open_queue: OpenQueue, forebay_broker: Broker, forebay_topic: str
) -> None:
    name = f"dlq.{forebay_topic}"
    with open_queue(dead_letter_topic=name) as queue:
        queue.send("0", key="poison")
        with queue.receive(WAIT) as message:
            message.reject("it is poison")
    dead = Queue(forebay_broker.bootstrap_servers, name, group=name)
    with dead, dead.receive(WAIT) as letter:
        assert (letter.key, letter.value) == (b"poison", b"0")


def test_no_dead_letters_into_a_topic_for_other_things(
    open_queue: OpenQueue, forebay_broker: Broker, forebay_topic: str
) -> None:
    others = f"{forebay_topic}-others"
    Admin(forebay_broker.bootstrap_servers).create_topic(others)
    queue = open_queue(dead_letter_topic=others)
    with queue, pytest.raises(ClientError, match=r"errors\.deadletterqueue\.group\.enable"), queue.receive(1):
        pass


def test_a_released_message_waits_for_its_backoff(open_queue: OpenQueue) -> None:
    with open_queue(retry_backoff_seconds=1.5) as queue:
        send(queue, 1)
        with queue.receive(WAIT) as message:
            message.release()
            released_s = time.monotonic()
        with queue.receive(WAIT) as message:
            assert time.monotonic() - released_s >= 1.5


def test_only_what_differs_is_written() -> None:
    current = {"share.auto.offset.reset": "latest", "share.record.lock.duration.ms": "30000"}
    assert changes(QueueSettings(lock_seconds=30).config(), current) == {
        "share.auto.offset.reset": "earliest"
    }
    assert changes(QueueSettings(start=None).config(), current) == {}


def test_a_broker_without_a_setting_is_named() -> None:
    with pytest.raises(ClientError, match=r"no setting forebay\.share\.retry\.backoff\.ms"):
        changes(QueueSettings(retry_backoff_seconds=1).config(), {"share.auto.offset.reset": "latest"})


# -- mistakes ----------------------------------------------------------------------------------------------


def test_a_topic_that_is_not_there(forebay_broker: Broker) -> None:
    queue = Queue(forebay_broker.bootstrap_servers, "nowhere", group="g")
    with queue, pytest.raises(ClientError, match="there is no topic 'nowhere'"), queue.receive(1):
        pass


def test_receiving_needs_a_group(forebay_broker: Broker, forebay_topic: str) -> None:
    with Queue(forebay_broker.bootstrap_servers, forebay_topic) as queue:
        queue.send("no group is needed for this")
        with pytest.raises(ConfigError, match="group="), queue.receive(1):
            pass


def test_a_closed_queue_says_so(open_queue: OpenQueue) -> None:
    with open_queue() as queue:
        pass
    with pytest.raises(ClientError, match="closed"):
        queue.send("late")
    with pytest.raises(ClientError, match="closed"), queue.receive(1):
        pass


def test_settings_that_the_queue_decides(open_queue: OpenQueue) -> None:
    queue = open_queue(settings={"share.acknowledgement.mode": "implicit"})
    with queue, pytest.raises(ConfigError, match=r"share\.acknowledgement\.mode"), queue.receive(1):
        pass


def test_an_old_client_library_is_named(open_queue: OpenQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(confluent_kafka, "ShareConsumer")
    queue = open_queue()
    with queue, pytest.raises(ConfigError, match=r"confluent-kafka>=2\.16"), queue.receive(1):
        pass


@pytest.mark.parametrize(
    "options",
    [
        {"lock_seconds": 0},
        {"delivery_limit": -1},
        {"retry_backoff_seconds": -1},
        {"start": "now"},
        {"batch_max": 0},
        {"dead_letter_topic": "t"},
    ],
)
def test_wrong_arguments(options: dict[str, object]) -> None:
    name = next(iter(options))
    with pytest.raises(ConfigError, match=name):
        Queue("127.0.0.1:1", "t", group="g", **options)  # type: ignore[arg-type]
