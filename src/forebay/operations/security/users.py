"""Users through a broker, with the client library's requests for SCRAM credentials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from forebay.operations.client import REQUEST_SECONDS, Client, settle
from forebay.wire.sasl.scram import BY_CODE, BY_NAME

if TYPE_CHECKING:
    from confluent_kafka.admin import UserScramCredentialAlteration


class ThroughBroker:
    def __init__(self, client: Client) -> None:
        self._client = client

    def credentials(self) -> Mapping[str, Mapping[str, int]]:
        admin = self._client.admin()  # kept: pending requests end with it
        asked = admin.describe_user_scram_credentials(request_timeout=REQUEST_SECONDS)
        assert not isinstance(asked, dict), "everybody is described in one answer"
        found = settle(asked)
        return {
            name: {
                BY_CODE[info.mechanism.value].sasl_name: info.iterations
                for info in described.scram_credential_infos
                if info.mechanism.value in BY_CODE
            }
            for name, described in found.items()
        }

    def put(self, name: str, mechanisms: Sequence[str], password: str, iterations: int) -> None:
        from confluent_kafka.admin import (
            ScramCredentialInfo,
            ScramMechanism,
            UserScramCredentialUpsertion,
        )

        self._alter(
            name,
            [
                UserScramCredentialUpsertion(
                    name,
                    ScramCredentialInfo(ScramMechanism(BY_NAME[each].code), iterations),
                    password.encode(),
                )
                for each in mechanisms
            ],
        )

    def delete(self, name: str, mechanisms: Sequence[str]) -> None:
        from confluent_kafka.admin import ScramMechanism, UserScramCredentialDeletion

        self._alter(
            name,
            [UserScramCredentialDeletion(name, ScramMechanism(BY_NAME[each].code)) for each in mechanisms],
        )

    def _alter(self, name: str, alterations: list[UserScramCredentialAlteration]) -> None:
        admin = self._client.admin()
        futures = admin.alter_user_scram_credentials(alterations, request_timeout=REQUEST_SECONDS)
        settle(futures[name])
