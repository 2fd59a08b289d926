"""The keys of the store.

/forebay/<cluster>/
  cluster-id              the id that clients see
  brokers/<id>            under the broker's lease; broker epoch = create revision
  controller              under a lease; controller epoch = create revision
  topics/<name>           topic id and assignment
  views/<name>            source and query of a view
  acls/<id>               an access rule; the id follows from the rule
  quotas/<id>             quotas of a user, a client id or an IP address; the id follows from whose they are
  state/<topic id>/<p>    leader, epoch, in-sync replicas, from a partition's first change on
  deleted/<topic id>      tombstone of a topic: its name, and when it was deleted
  configs/topics/<name>   settings of a topic
  configs/brokers/<id>    settings of a broker, or of all under "default"
  configs/groups/<id>     settings of a group; what is not allowed in a URL's path is written as there
  login-secret            random bytes; salts of users that do not exist are derived from it
  users/<name>            SCRAM keys of a user; the name is written as in a URL's path
  tokens/<id>             owner, times and SCRAM keys of a delegation token
  node-ids/<id>           numbers of brokers that are taken, whether the broker runs or not
  evidence/<id>           what a broker wrote last to recognise this store by
  restored                the last restore of this store from a backup, as brokers have noticed it
  claims/<id>/<n>         what a broker's disk holds of partitions whose leader is elected after a restore
  producer-ids            the first producer id that is not yet given out
  verdicts/<id>/<n>       a broker was counted as dead because it refused connections; gone after a minute
  format                  the format that values are written in, once it has been raised
  failovers               the last of these, and how long they took
"""

from __future__ import annotations

from urllib.parse import quote, unquote

from forebay.core.cluster.image_changes import ConfigOwner
from forebay.core.cluster.stored.image_text import topic_id_text
from forebay.errors import ProtocolError
from forebay.lazy import dataclass


@dataclass(frozen=True, slots=True)
class Keys:
    cluster: str = "main"

    @property
    def root(self) -> str:
        return f"/forebay/{self.cluster}/"

    @property
    def cluster_id(self) -> str:
        return f"{self.root}cluster-id"

    @property
    def login_secret(self) -> str:
        return f"{self.root}login-secret"

    @property
    def controller(self) -> str:
        return f"{self.root}controller"

    @property
    def producer_ids(self) -> str:
        return f"{self.root}producer-ids"

    @property
    def restored(self) -> str:
        return f"{self.root}restored"

    def evidence(self, broker_id: int) -> str:
        return f"{self.root}evidence/{broker_id}"

    def claims(self, broker_id: int) -> str:
        """The prefix of all keys with the claims of a broker."""
        return f"{self.root}claims/{broker_id}/"

    @property
    def remote_store(self) -> str:
        """The id of the object store that segments are copied to."""
        return f"{self.root}remote-store"

    @property
    def format(self) -> str:
        return f"{self.root}format"

    @property
    def failovers(self) -> str:
        return f"{self.root}failovers"

    @property
    def node_ids(self) -> str:
        """The prefix of the keys of all allocated node ids."""
        return f"{self.root}node-ids/"

    def broker(self, broker_id: int) -> str:
        return f"{self.root}brokers/{broker_id}"

    def verdicts(self, broker_id: int) -> str:
        """The prefix of the keys of all verdicts on a broker."""
        return f"{self.root}verdicts/{broker_id}/"

    def topic(self, name: str) -> str:
        return f"{self.root}topics/{name}"

    def view(self, name: str) -> str:
        return f"{self.root}views/{name}"

    def acl(self, acl_id: str) -> str:
        return f"{self.root}acls/{acl_id}"

    def quota(self, quota_id: str) -> str:
        return f"{self.root}quotas/{quota_id}"

    def states(self, topic_id: bytes) -> str:
        """The prefix of all state keys of a topic."""
        return f"{self.root}state/{topic_id_text(topic_id)}/"

    def state(self, topic_id: bytes, partition: int) -> str:
        return f"{self.states(topic_id)}{partition}"

    def tombstone(self, topic_id: bytes) -> str:
        return f"{self.root}deleted/{topic_id_text(topic_id)}"

    def user(self, name: str) -> str:
        return f"{self.root}users/{quote(name, safe='')}"

    def token(self, token_id: str) -> str:
        return f"{self.root}tokens/{token_id}"

    def config(self, owner: ConfigOwner, name: str) -> str:
        # A group's id may hold any character, a slash too.
        return f"{self.root}configs/{owner.value}/{quote(name, safe='')}"

    @staticmethod
    def user_name(part: str) -> str:
        """The name of a user, from the last part of its key."""
        try:
            return unquote(part, errors="strict")
        except UnicodeDecodeError:
            raise ProtocolError(f"the stored key of a user cannot be read: {part!r}") from None

    @staticmethod
    def config_name(part: str) -> str:
        """The name of a config's owner, from the last part of its key."""
        try:
            return unquote(part, errors="strict")
        except UnicodeDecodeError:
            raise ProtocolError(f"the stored key of a group's settings cannot be read: {part!r}") from None

    def split(self, key: str) -> tuple[str, ...]:
        """The parts of a key below the root."""
        assert key.startswith(self.root)
        return tuple(key[len(self.root) :].split("/"))
