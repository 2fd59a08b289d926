"""Passwords that clients send: nobody learns from the time that a check takes whether a user exists."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from forebay.broker.authentication.password_checks import PasswordChecks
from forebay.core.cluster.images.user_image import UserImage
from forebay.core.security.sasl.exchange import Accepted, CheckPassword, Rejected
from forebay.core.security.sasl.made_up_credentials import MadeUpCredentials
from forebay.core.security.users import new_credential
from forebay.wire.sasl.scram import ITERATIONS_MAX, ScramMechanism

SHA_256 = ScramMechanism.SHA_256
ADA = UserImage(name="ada", credentials={SHA_256: new_credential(SHA_256, "secret", b"salt", ITERATIONS_MAX)})


class Threads:
    async def run(
        self, _host: str, _user: str, is_wanted: Callable[[], bool], work: Callable[[], Any]
    ) -> Any:
        return work() if is_wanted() else None


@pytest.fixture
def checks() -> PasswordChecks:
    metadata: Any = SimpleNamespace(image=SimpleNamespace(users={"ada": ADA}))
    threads: Any = Threads()
    return PasswordChecks(metadata, threads, MadeUpCredentials(b"secret of the cluster"))


async def test_a_password_is_right_or_wrong(checks: PasswordChecks) -> None:
    right, wrong, unknown = [
        await checks.verdict(CheckPassword(user=user, password=password), "10.0.0.1", lambda: True)
        for user, password in (("ada", "secret"), ("ada", "other"), ("bob", "secret"))
    ]
    assert right == Accepted(user="ada")
    assert isinstance(wrong, Rejected) and isinstance(unknown, Rejected)


async def test_a_user_that_does_not_exist_takes_as_long(
    checks: PasswordChecks, monkeypatch: pytest.MonkeyPatch
) -> None:
    work: list[tuple[ScramMechanism, int]] = []

    def salted(self: ScramMechanism, _password: str, _salt: bytes, iterations: int) -> bytes:
        work.append((self, iterations))
        return bytes(self.key_bytes)

    monkeypatch.setattr(ScramMechanism, "salted_password", salted)
    for user in ("ada", "bob", "carol"):
        await checks.verdict(CheckPassword(user=user, password="guess"), "10.0.0.1", lambda: True)
    assert work == [(SHA_256, ITERATIONS_MAX)] * 3


@pytest.mark.parametrize(
    "users",
    [
        {},
        {"ada": UserImage(name="ada", credentials={SHA_256: new_credential(SHA_256, "new", b"salt", 4096)})},
    ],
)
async def test_a_password_that_was_changed_while_it_waited_for_its_check_is_refused(
    users: dict[str, UserImage],
) -> None:
    image = SimpleNamespace(users={"ada": ADA})
    metadata: Any = SimpleNamespace(image=image)
    threads: Any = Threads()
    checks = PasswordChecks(metadata, threads, MadeUpCredentials(b"secret of the cluster"))

    def its_turn_comes() -> bool:
        image.users = users
        return True

    asked = CheckPassword(user="ada", password="secret")
    assert isinstance(await checks.verdict(asked, "10.0.0.1", its_turn_comes), Rejected)
