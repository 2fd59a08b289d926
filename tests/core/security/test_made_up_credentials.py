"""Users that do not exist look like those that do, whatever tool has made those."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from forebay.core.cluster.images.user_image import ScramCredential, UserImage
from forebay.core.security.sasl.made_up_credentials import MadeUpCredentials
from forebay.wire.sasl.scram import ITERATIONS_DEFAULT, ScramMechanism

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512
BINARY_SALT, JAVA_SALT = bytes(range(150, 182)), b"1v8k3pa0q9zz7c5d4e2f6g1h0i"


def user(name: str, iterations: int, salt: bytes, mechanism: ScramMechanism = SHA_512) -> UserImage:
    credential = ScramCredential(salt=salt, stored_key=b"k", server_key=b"k", iterations=iterations)
    return UserImage(name=name, credentials={mechanism: credential})


def users(*them: UserImage) -> dict[str, UserImage]:
    return {each.name: each for each in them}


def look(credential: ScramCredential) -> tuple[int, int, bool]:
    return credential.iterations, len(credential.salt), credential.salt.isalnum()


def looks_of(made_up: MadeUpCredentials, name: str, stored: dict[str, UserImage]) -> tuple[int, int, bool]:
    return look(made_up.credential(SHA_512, name, stored))


def test_all_users_of_one_kind_are_what_unknown_ones_look_like() -> None:
    stored = users(*(user(f"u{n}", 8192, JAVA_SALT) for n in range(3)))
    made_up = MadeUpCredentials(b"secret")
    for n in range(50):
        assert look(made_up.credential(SHA_512, f"nobody-{n}", stored)) == (8192, 26, True)
    # Nobody logs in by the other mechanism, so there is nobody to look like.
    assert made_up.credential(SHA_256, "nobody", stored).iterations == ITERATIONS_DEFAULT


def test_kinds_are_as_frequent_among_unknown_users_as_among_known_ones() -> None:
    few, many = user("few", 16384, BINARY_SALT), [user(f"u{n}", 4096, JAVA_SALT) for n in range(9)]
    made_up = MadeUpCredentials(b"secret")
    shown = Counter(look(made_up.credential(SHA_512, f"n{n}", users(few, *many))) for n in range(2000))
    assert set(shown) == {(16384, 32, False), (4096, 26, True)}
    assert 120 < shown[16384, 32, False] < 280  # of 2000, a tenth


def test_a_name_looks_the_same_on_all_brokers_and_after_a_restart() -> None:
    stored = users(user("a", 4096, BINARY_SALT), user("b", 8192, JAVA_SALT))
    reversed_ = dict(reversed(stored.items()))
    for n in range(50):
        one = MadeUpCredentials(b"secret").credential(SHA_512, f"n{n}", stored)
        assert one == MadeUpCredentials(b"secret").credential(SHA_512, f"n{n}", reversed_)
        assert one.salt != MadeUpCredentials(b"other").credential(SHA_512, f"n{n}", stored).salt


def test_another_user_changes_the_look_of_few_names() -> None:
    stored = [user(f"u{n}", 4096 + n % 2, BINARY_SALT) for n in range(100)]
    made_up = MadeUpCredentials(b"secret")
    before, after = users(*stored), users(*stored, user("new", 4096, BINARY_SALT))
    names = [f"n{n}" for n in range(1000)]
    changed = [n for n in names if looks_of(made_up, n, before) != looks_of(made_up, n, after)]
    assert len(changed) < 30


@given(st.text(max_size=30), st.integers(1, 256), st.sampled_from(ScramMechanism))
def test_salts_of_every_length(name: str, size: int, mechanism: ScramMechanism) -> None:
    stored = users(user("a", 5000, bytes([200]) * size, mechanism))
    assert len(MadeUpCredentials(b"secret").credential(mechanism, name, stored).salt) == size


def test_passwords_of_unknown_users_take_as_long_as_those_of_known_ones() -> None:
    """The hash and its iterations are those that the password of some user is checked with, and as often."""
    both = UserImage(
        name="both",
        credentials={
            SHA_512: user("both", 4096, BINARY_SALT).credentials[SHA_512],
            SHA_256: user("both", 5000, BINARY_SALT, SHA_256).credentials[SHA_256],
        },
    )
    old = [user(f"old{n}", 16384, BINARY_SALT, SHA_256) for n in range(3)]
    made_up, stored = MadeUpCredentials(b"secret"), users(both, *old)
    drawn = [made_up.password_credential(f"n{n}", stored) for n in range(1000)]
    kinds = Counter((mechanism, credential.iterations) for mechanism, credential in drawn)
    assert set(kinds) == {(SHA_512, 4096), (SHA_256, 16384)}
    assert 180 < kinds[SHA_512, 4096] < 320  # of 1000, a quarter
    mechanism, credential = made_up.password_credential("n1", users(*old))
    assert (mechanism, look(credential)) == (SHA_256, (16384, 32, False)), "the users of now count"
    assert made_up.password_credential("n1", {})[0] is SHA_512
