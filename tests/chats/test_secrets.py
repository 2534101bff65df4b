"""Row S14: stored secrets are encrypted, can be rotated, and are never displayed."""

import re

import pytest
from cryptography.fernet import Fernet
from pytest_django.fixtures import Settings

from chats.ground.secrets import (
    SecretUnreadable,
    decrypt,
    encrypt,
    generate_token,
    get_last_four,
    hash_token,
    rotate_secret,
)

SECRET = "sk-canary-ü-0123456789"


@pytest.fixture(autouse=True)
def keys(settings: Settings) -> list[str]:
    settings.ENCRYPTION_KEYS = [Fernet.generate_key().decode()]
    made: list[str] = settings.ENCRYPTION_KEYS
    return made


def test_S14_secret_comes_back_and_its_token_tells_nothing() -> None:
    token = encrypt(SECRET)
    assert decrypt(token) == SECRET
    assert "canary" not in token
    assert encrypt(SECRET) != token


def test_S14_older_key_still_reads_and_rotation_lets_it_go(
    settings: Settings, keys: list[str]
) -> None:
    token = encrypt(SECRET)
    newer = Fernet.generate_key().decode()
    settings.ENCRYPTION_KEYS = [newer, *keys]
    assert decrypt(token) == SECRET
    rotated = rotate_secret(token)
    settings.ENCRYPTION_KEYS = [newer]
    assert decrypt(rotated) == SECRET
    with pytest.raises(SecretUnreadable):
        decrypt(token)


@pytest.mark.parametrize("work", [decrypt, rotate_secret])
@pytest.mark.parametrize("token", ["", "rubbish", "gAAAAABo", "ü"])
def test_S14_damaged_token_is_refused_with_its_code(work: object, token: str) -> None:
    assert callable(work)
    with pytest.raises(SecretUnreadable) as caught:
        work(token)
    assert caught.value.code == "secret_unreadable"
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("text", "shown"), [("sk-0123456789abcd", "abcd"), ("short", ""), ("x" * 11, ""), ("", "")]
)
def test_S14_only_the_last_four_of_a_long_secret_are_shown(text: str, shown: str) -> None:
    assert get_last_four(text) == shown


def test_S13_tokens_are_long_different_and_safe_in_urls() -> None:
    tokens = {generate_token() for _ in range(100)}
    assert len(tokens) == 100
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{43}", token) for token in tokens)


def test_S13_hash_is_sha256_of_the_text() -> None:
    assert hash_token("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
