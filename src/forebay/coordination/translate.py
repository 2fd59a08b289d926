"""Translates between the store and the image: keys and events on one side, typed changes on the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from forebay.coordination.keys import Keys
from forebay.coordination.store import Compare, Delete, Event, EventKind, KeyValue, Put
from forebay.core.acls.doubt import denials
from forebay.core.acls.text import decode_acl, encode_acl
from forebay.core.cluster.image import NO_CONTROLLER, ClusterImage
from forebay.core.cluster.image_changes import (
    BrokerDeleted,
    BrokerPut,
    Change,
    ConfigOwner,
    ConfigPut,
    ControllerPut,
    EvidencePut,
    PartitionDeleted,
    PartitionDoubted,
    PartitionPut,
    ProducerIdsPut,
    TopicDeleted,
    TopicPut,
)
from forebay.core.cluster.images.acl_image import AclDeleted, AclPut
from forebay.core.cluster.images.deleted_topics import DeletedTopic, TombstoneDeleted, TombstonePut
from forebay.core.cluster.images.quota_image import QuotaDeleted, QuotaImage, QuotaPut
from forebay.core.cluster.images.token_image import TokenDeleted, TokenPut
from forebay.core.cluster.images.unreadable import (
    SAFE_BROKER_SETTINGS,
    SAFE_TOPIC_SETTINGS,
    Unreadable,
    UnreadablePut,
)
from forebay.core.cluster.images.user_image import UserDeleted, UserPut
from forebay.core.cluster.images.view_image import ViewDeleted, ViewPut
from forebay.core.cluster.partition_state import PartitionState
from forebay.core.cluster.resources import check_stored
from forebay.core.cluster.restore_image import ClaimsDeleted, ClaimsPut, NodePut, Restore, RestorePut
from forebay.core.cluster.stored import image_text
from forebay.core.cluster.stored.restore_text import decode_claims, decode_restore
from forebay.core.cluster.stored.user_text import decode_user, encode_user
from forebay.core.quotas.text import decode_quota, encode_quota
from forebay.errors import KafkaError, ProtocolError
from forebay.lazy import load

if TYPE_CHECKING:
    from forebay.core.cluster.images.delegation_token import DelegationToken

# Topics before the partitions that belong to them.
_LOAD_ORDER = {"topics": 0, "state": 1}

_OWNERS = {owner.value: owner for owner in ConfigOwner}
_SAFE_SETTINGS = {
    ConfigOwner.TOPIC.value: SAFE_TOPIC_SETTINGS,
    ConfigOwner.BROKER.value: SAFE_BROKER_SETTINGS,
}
_REASON_LENGTH_MAX = 300


def changes_of_range(keys: Keys, items: Iterable[KeyValue]) -> list[Change]:
    """Changes also for values that cannot be read: they become `UnreadablePut`, with placeholders."""
    ordered = sorted(items, key=lambda item: _LOAD_ORDER.get(keys.split(item.key)[0], 2))
    changes: list[Change] = []
    for item in ordered:
        try:
            change = _put_change(keys, item)
            if change is not None:
                changes.append(change)
        except Exception as error:  # whatever a decoder raises for bytes that no broker wrote
            changes += _in_doubt(keys, item, error)
    return changes


def changes_of_events(keys: Keys, events: Iterable[Event]) -> list[Change] | None:
    """None if one of them cannot be read: then the image has to be rebuilt from the whole store."""
    try:
        changes = [
            _put_change(keys, event.kv) if event.kind is EventKind.PUT else _delete_change(keys, event.kv.key)
            for event in events
        ]
    except Exception:
        return None
    return [change for change in changes if change is not None]


def _in_doubt(keys: Keys, item: KeyValue, error: Exception) -> list[Change]:
    parts = keys.split(item.key)
    reason = error.message if isinstance(error, KafkaError) else str(error) or type(error).__name__
    value = Unreadable(
        key="/".join(parts),
        revision=item.mod_revision,
        reason=reason[:_REASON_LENGTH_MAX],
        denials=denials(item.value) if parts[0] == "acls" else (),
    )
    return [UnreadablePut(value=value), *_stand_in(keys, item)]


def _stand_in(keys: Keys, item: KeyValue) -> list[Change]:
    """The placeholders in the image for an unreadable value."""
    try:
        match keys.split(item.key):
            case ("state", topic_id, index):
                number = _number(item.key, index)
                return [PartitionDoubted(topic_id=image_text.parse_topic_id(topic_id), index=number)]
            case ("configs", kind, part) if kind in _SAFE_SETTINGS:
                overrides, revision = _SAFE_SETTINGS[kind], item.mod_revision
                name = keys.config_name(part)
                return [ConfigPut(owner=_OWNERS[kind], name=name, overrides=overrides, revision=revision)]
            case ("restored",):
                return [RestorePut(restore=Restore(is_readable=False))]
            case _:
                return []
    except Exception:
        return []  # not even the key can be read, so nothing depends on it


def _put_change(keys: Keys, item: KeyValue) -> Change | None:
    parts = keys.split(item.key)
    if len(parts) == 3 and parts[0] == "state":  # nearly all keys of a large cluster are of this kind
        _, topic_id, index = parts
        return PartitionPut(
            topic_id=image_text.parse_topic_id(topic_id),
            state=image_text.decode_partition(_number(item.key, index), item.value, item.mod_revision),
        )
    match parts:
        case ("topics", name):
            return TopicPut(record=image_text.decode_topic(name, item.value), revision=item.mod_revision)
        case ("views", name):
            return ViewPut(view=image_text.decode_view(name, item.value, item.mod_revision))
        case ("users", part):
            return UserPut(user=decode_user(keys.user_name(part), item.value, item.mod_revision))
        case ("tokens", token_id):
            decode_token = load("forebay.core.cluster.stored.token_text:decode_token")
            return TokenPut(token=decode_token(token_id, item.value, item.mod_revision))
        case ("acls", acl_id):
            return AclPut(id=acl_id, acl=decode_acl(item.key, item.value))
        case ("quotas", quota_id):
            entity, values = decode_quota(item.key, item.value)
            quota = QuotaImage(entity=entity, values=values, revision=item.mod_revision)
            return QuotaPut(id=quota_id, quota=quota)
        case ("configs", kind, part) if kind in _OWNERS:
            name = keys.config_name(part)
            overrides = image_text.decode_overrides(name, item.value)
            check_stored(_OWNERS[kind], overrides)
            return ConfigPut(owner=_OWNERS[kind], name=name, overrides=overrides, revision=item.mod_revision)
        case ("deleted", topic_id):
            return TombstonePut(
                topic=image_text.decode_tombstone(image_text.parse_topic_id(topic_id), item.value)
            )
        case ("brokers", broker_id):
            number = _number(item.key, broker_id)
            return BrokerPut(registration=image_text.decode_broker(number, item.value, item.create_revision))
        case ("controller",):
            return ControllerPut(id=_number(item.key, item.value.decode(errors="replace")))
        case ("producer-ids",):
            return ProducerIdsPut(revision=item.mod_revision)
        case ("evidence", broker_id):
            return EvidencePut(node=_number(item.key, broker_id), revision=item.mod_revision)
        case ("node-ids", broker_id):
            return NodePut(id=_number(item.key, broker_id))
        case ("restored",):
            return RestorePut(restore=decode_restore(item.value))
        case ("claims", broker_id, text):
            place = _number(item.key, broker_id), _number(item.key, text)
            return ClaimsPut(part=decode_claims(*place, item.value))
        case _:
            # Keys of other concerns (the cluster's id), and of newer versions.
            return None


def _delete_change(keys: Keys, key: str) -> Change | None:
    match keys.split(key):
        case ("topics", name):
            return TopicDeleted(name=name)
        case ("views", name):
            return ViewDeleted(name=name)
        case ("users", part):
            return UserDeleted(name=keys.user_name(part))
        case ("tokens", token_id):
            return TokenDeleted(id=token_id)
        case ("acls", acl_id):
            return AclDeleted(id=acl_id)
        case ("quotas", quota_id):
            return QuotaDeleted(id=quota_id)
        case ("configs", kind, part) if kind in _OWNERS:
            return ConfigPut(owner=_OWNERS[kind], name=keys.config_name(part), overrides={})
        case ("deleted", topic_id):
            return TombstoneDeleted(topic_id=image_text.parse_topic_id(topic_id))
        case ("brokers", broker_id):
            return BrokerDeleted(id=_number(key, broker_id))
        case ("controller",):
            return ControllerPut(id=NO_CONTROLLER)
        case ("producer-ids",):
            return ProducerIdsPut(revision=0)
        case ("claims", broker_id, number):
            return ClaimsDeleted(node=_number(key, broker_id), number=_number(key, number))
        case _:
            return None


def _number(key: str, text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ProtocolError(f"the stored key {key}: {text!r} is not a number")
    return int(text)


class Writes:
    """One guarded transaction under construction."""

    def __init__(self, keys: Keys, image: ClusterImage, guards: Sequence[Compare] = ()) -> None:
        self._keys = keys
        self._image = image
        self._topics: set[str] = set()
        """The topics whose existence is already compared."""
        self.compares: list[Compare] = list(guards)
        self.puts: list[Put] = []
        self.deletes: list[Delete] = []

    @property
    def operations(self) -> int:
        """The number of operations, as counted for the limit of transactions."""
        return max(len(self.compares), len(self.puts) + len(self.deletes))

    def __bool__(self) -> bool:
        """True if it would change anything."""
        return bool(self.puts or self.deletes)

    def add_all(self, changes: Sequence[Change]) -> None:
        for change in changes:
            self.add(change)

    def add(self, change: Change) -> None:
        keys = self._keys
        match change:
            case PartitionPut(topic_id=topic_id, state=state):
                self._put_state(topic_id, state)
            case TopicPut(record=record):
                key, revision = keys.topic(record.name), self._topic_revision(record.name)
                if not revision:
                    self._claim(keys.view(record.name))
                self._put(key, image_text.encode_topic(record), revision)
            case TopicDeleted(name=name, topic_id=topic_id, deleted_ms=deleted_ms):
                assert topic_id is not None
                self._delete(keys.topic(name), self._topic_revision(name))
                self._put_tombstone(DeletedTopic(topic_id=topic_id, name=name, deleted_ms=deleted_ms))
                self.deletes.append(Delete(key=keys.states(topic_id), prefix=True))
            case PartitionDeleted(topic_id=topic_id, state=state):
                self._delete(keys.state(topic_id, state.index), state.partition_epoch)
            case ViewPut(view=view):
                self._claim(keys.topic(view.name))
                self._put(keys.view(view.name), image_text.encode_view(view), self._view_revision(view.name))
            case ViewDeleted(name=name):
                self._delete(keys.view(name), self._view_revision(name))
            case ConfigPut(owner=owner, name=name, overrides=overrides):
                revision = self._image.config(owner, name).revision
                self._put_or_delete(keys.config(owner, name), overrides, revision)
            case UserPut(user=user):
                self._put(keys.user(user.name), encode_user(user), self._user_revision(user.name))
            case UserDeleted(name=name):
                self._delete(keys.user(name), self._user_revision(name))
            case TokenPut(token=token):
                self._put_token(token)
            case TokenDeleted(id=token_id):
                self._delete(keys.token(token_id), self._token_revision(token_id))
            case AclPut(id=acl_id, acl=acl):
                # A rule is never altered, so rewriting one that another has written does no harm.
                self.puts.append(Put(key=keys.acl(acl_id), value=encode_acl(acl)))
            case AclDeleted(id=acl_id):
                self.deletes.append(Delete(key=keys.acl(acl_id)))
            case QuotaPut(id=quota_id, quota=quota):
                value = encode_quota(quota.entity, quota.values)
                self._put(keys.quota(quota_id), value, self._quota_revision(quota_id))
            case QuotaDeleted(id=quota_id):
                self._delete(keys.quota(quota_id), self._quota_revision(quota_id))
            case TombstonePut(topic=topic):
                self._put_tombstone(topic)
            case TombstoneDeleted(topic_id=topic_id):
                self.deletes.append(Delete(key=keys.tombstone(topic_id)))
            case BrokerPut() | BrokerDeleted() | ControllerPut() | ClaimsPut() | ClaimsDeleted():
                raise AssertionError("a broker registers, claims and is elected by itself, under its lease")
            case ProducerIdsPut():
                raise AssertionError("blocks are taken by `producer_id_counter.py`")
            case EvidencePut():
                raise AssertionError("each broker writes its own (`store_memory.py`)")
            case RestorePut() | NodePut():
                raise AssertionError("it is noted before there is an image")
            case UnreadablePut() | PartitionDoubted():
                raise AssertionError("read from the store, never written")

    def _put_tombstone(self, topic: DeletedTopic) -> None:
        # An id is never used again, so there is nothing to compare.
        value = image_text.encode_tombstone(topic)
        self.puts.append(Put(key=self._keys.tombstone(topic.topic_id), value=value))

    def _put_token(self, token: DelegationToken) -> None:
        # The tokens of a user are deleted with the user, so none may be created unseen at the same time.
        owner = token.owner_name
        self.compares.append(Compare.unchanged(self._keys.user(owner), self._user_revision(owner)))
        self._put(
            self._keys.token(token.id),
            load("forebay.core.cluster.stored.token_text:encode_token")(token),
            self._token_revision(token.id),
        )

    def _put(self, key: str, value: bytes, revision: int) -> None:
        self._check_readable(key)
        self.compares.append(Compare.unchanged(key, revision))
        self.puts.append(Put(key=key, value=value))

    def _check_readable(self, key: str) -> None:
        """Never overwrite an unreadable value. (For states the compare ensures it, so that one partition does
        not block the changes of others.)"""
        unreadable = self._image.unreadable
        if unreadable and not key.startswith(f"{self._keys.root}state/"):
            unreadable.check(key.removeprefix(self._keys.root))

    def _delete(self, key: str, revision: int) -> None:
        self._check_readable(key)
        self.compares.append(Compare.unchanged(key, revision))
        self.deletes.append(Delete(key=key))

    def _put_or_delete(self, key: str, overrides: object, revision: int) -> None:
        assert isinstance(overrides, dict)
        if overrides:
            self._put(key, image_text.encode_overrides(overrides), revision)
        elif revision:
            self._delete(key, revision)
        # Otherwise there is nothing to delete, and no revision to wait for.

    def _topic_revision(self, name: str) -> int:
        topic = self._image.topics.get(name)
        return 0 if topic is None else topic.revision

    def _claim(self, key: str) -> None:
        """A name belongs to a topic or to a view: a new one must not exist as the other."""
        self._check_readable(key)
        self.compares.append(Compare.absent(key))

    def _view_revision(self, name: str) -> int:
        view = self._image.views.get(name) or self._image.fills.get(name)
        return 0 if view is None else view.revision

    def _user_revision(self, name: str) -> int:
        user = self._image.users.get(name)
        return 0 if user is None else user.revision

    def _token_revision(self, token_id: str) -> int:
        token = self._image.tokens.get(token_id)
        return 0 if token is None else token.revision

    def _quota_revision(self, quota_id: str) -> int:
        quota = self._image.quotas.get(quota_id)
        return 0 if quota is None else quota.revision

    def _put_state(self, topic_id: bytes, state: PartitionState) -> None:
        topic = self._image.topic_by_id(topic_id)
        assert topic is not None
        # A partition without its own key looks the same when its topic is gone: compare the topic too.
        if topic.name not in self._topics:
            self._topics.add(topic.name)
            self.compares.append(Compare.unchanged(self._keys.topic(topic.name), topic.revision))
        # An unreadable state is never overwritten: no key has its partition epoch. So one partition does not
        # block the changes of others.
        key = self._keys.state(topic_id, state.index)
        self.compares.append(Compare.unchanged(key, state.partition_epoch))
        self.puts.append(Put(key=key, value=image_text.encode_partition(state)))
