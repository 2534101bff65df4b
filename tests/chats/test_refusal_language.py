"""Refusals with their details: English in rows and logs, the reader's language elsewhere."""

from collections.abc import Callable, Iterator
from typing import Any, cast
from unittest import mock

import pytest
from django.core.exceptions import ValidationError
from django.db import OperationalError
from django.utils import translation
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy, gettext_noop, ngettext_lazy, trans_real
from rest_framework import exceptions

from chats.api.errors import CsrfFailed, convert_validation_error
from chats.api.inputs import NewChat
from chats.api.parsing import InvalidJSON, parse_json_object
from chats.compaction.people.rights import WORDS, NotAllowedByPolicy
from chats.exchange.words import describe_loss
from chats.ground import csrf, databases, turn_notices
from chats.ground.refusals import Refusal
from chats.people import invitations
from chats.providers.accounts import ServerRefused
from chats.providers.address import check_base_url
from chats.providers.base import ProviderError
from chats.record.holds import CHAT_HIDDEN, UnderHold
from chats.turns.state_extraction import SENTENCE

LANGUAGE = "zh-hans"
# Stand-ins, so that the tests do not depend on the wording of the catalogue.
WORDS_HERE = {
    "Nothing was changed: {reason}": "未更改：{reason}",
    "the list is full": "列表已满",
    "it has more than {limit} entries": "条目超过 {limit} 个",
    "The policy {policy} does not allow you to {action}. Ask your administrator.": (
        "策略 {policy} 不允许你{action}。"
    ),
    "change a summary": "修改摘要",
    "A legal hold covers this, so it cannot be erased now. It is erased automatically when the hold"
    " ends. {meanwhile}": "受保留。{meanwhile}",
    "Until then the chat is hidden from everyone.": "聊天已隐藏。",
    "Until then it remains unchanged.": "保持不变。",
    "The address must start with https:// or http://.": "地址必须以 https:// 开头。",
    "This address is on a local or private network. To allow it, add {server} to "
    "ALLOWED_PRIVATE_PROVIDERS.": "添加 {server}。",
    "The server rejected the API key (it answered {status}). Check the key.": (
        "密钥无效（{status}）。"
    ),
    "The server did not answer in time. Check the address and try again.": "超时。",
    "The model provider's content filter blocked the reply. Edit your message or choose another "
    "model.": "已过滤。",
    "Invalid JSON: {problem}.": "JSON 无效：{problem}。",
    "an object has the same key twice": "键重复",
    "the body is not an object": "正文不是对象",
    "it has more than {limit} levels": "超过 {limit} 层",
    "{problem}, at character {position}": "{problem}，位置 {position}",
    "The database cannot be used: {cause}. Nothing was changed; try again soon.": (
        "数据库：{cause}。"
    ),
    "the connection was refused": "连接被拒绝",
    "The browser sent no Referer header. Allow it for this site.": "没有 Referer。",
    "This field does not exist or cannot be set.": "没有此字段。",
    "System texts were left out.": "省略了系统文本。",
    "Waiting for the provider until {until} UTC.": "等待至 {until}。",
    "Updating the state of this chat from your message.": "正在更新状态。",
    "This name is taken. Choose another one.": "名称已占用。",
}


@pytest.fixture(autouse=True)
def _words() -> Iterator[None]:
    """Put the words of this file before those of the catalogue."""
    catalogue = cast(Any, trans_real.translation(LANGUAGE))._catalog
    own: dict[Any, str] = {**WORDS_HERE, ("{n} chat", 0): "{n} 个聊天"}
    with (
        mock.patch.object(catalogue, "_catalogs", [own, *catalogue._catalogs]),
        mock.patch.object(catalogue, "_plurals", [lambda _: 0, *catalogue._plurals]),
    ):
        yield


class NotChanged(Refusal):
    """A refusal with a detail."""

    sentence = gettext_noop("Nothing was changed: {reason}")


def both(refusal: Refusal) -> tuple[str, str]:
    """Return the stored sentence and the one that a reader of Chinese gets."""
    with translation.override(LANGUAGE):
        return refusal.sentence, refusal.localized


def refused(call: Callable[[], object]) -> Refusal:
    """Return the refusal that a call raises, which may happen under any language."""
    with translation.override(LANGUAGE), pytest.raises(Refusal) as caught:
        call()
    return caught.value


def test_one_refusal_has_its_sentence_in_both_languages() -> None:
    refusal = NotChanged(reason=gettext_lazy("the list is full"))

    assert both(refusal) == ("Nothing was changed: the list is full", "未更改：列表已满")
    assert str(refusal) == "Nothing was changed: the list is full"
    assert refusal.localized == refusal.sentence


def test_details_with_values_follow_the_language_too() -> None:
    limit = format_lazy(gettext_lazy("it has more than {limit} entries"), limit=7)
    count = format_lazy(ngettext_lazy("{n} chat", "{n} chats", "n"), n=2)

    assert both(NotChanged(reason=limit)) == (
        "Nothing was changed: it has more than 7 entries",
        "未更改：条目超过 7 个",
    )
    assert both(NotChanged(reason=count)) == ("Nothing was changed: 2 chats", "未更改：2 个聊天")


def test_a_detail_without_a_translation_stays_as_it_is() -> None:
    assert both(NotChanged(reason="ENOSPC")) == ("Nothing was changed: ENOSPC", "未更改：ENOSPC")


def test_the_body_of_an_error_is_in_the_language_of_the_reader() -> None:
    refusal = NotChanged(reason=gettext_lazy("the list is full"))

    with translation.override(LANGUAGE):
        body = refusal.body(request_id="r")

    assert body["error"]["message"] == "未更改：列表已满"
    assert body["error"]["code"] == "refused"


def test_a_sentence_of_a_right_and_of_a_hold() -> None:
    denied = NotAllowedByPolicy(policy="P", action=WORDS["edit"])

    assert both(denied) == (
        "The policy P does not allow you to change a summary. Ask your administrator.",
        "策略 P 不允许你修改摘要。",
    )
    assert both(UnderHold(meanwhile=CHAT_HIDDEN))[1] == "受保留。聊天已隐藏。"
    assert both(UnderHold())[1] == "受保留。保持不变。"


def test_a_refused_address() -> None:
    scheme = refused(lambda: check_base_url("ftp://models.example", allowed_private=()))
    private = refused(lambda: check_base_url("https://10.0.0.1:8000", allowed_private=()))

    assert both(scheme) == (
        "The address must start with https:// or http://.",
        "地址必须以 https:// 开头。",
    )
    assert both(private) == (
        "This address is on a local or private network. To allow it, add 10.0.0.1:8000 to "
        "ALLOWED_PRIVATE_PROVIDERS.",
        "添加 10.0.0.1:8000。",
    )


def test_a_server_that_cannot_be_connected() -> None:
    rejected = ServerRefused(ProviderError("provider_auth", status=401))
    silent = ServerRefused(ProviderError("provider_timeout", status=408))
    other = ServerRefused(ProviderError("content_filtered"))

    assert both(rejected) == (
        "The server rejected the API key (it answered 401). Check the key.",
        "密钥无效（401）。",
    )
    assert both(silent) == (
        "The server did not answer in time. Check the address and try again.",
        "超时。",
    )
    assert both(other)[1] == "已过滤。"


@pytest.mark.parametrize(
    ("body", "english", "chinese"),
    [
        (
            b'{"a": 1, "a": 2}',
            "Invalid JSON: an object has the same key twice.",
            "JSON 无效：键重复。",
        ),
        (
            b"[" * 40 + b"]" * 40,
            "Invalid JSON: the body is not an object.",
            "JSON 无效：正文不是对象。",
        ),
        (
            b'{"a": ' + b"[" * 40 + b"]" * 40 + b"}",
            "Invalid JSON: it has more than 32 levels.",
            "JSON 无效：超过 32 层。",
        ),
        (
            b"{",
            "Invalid JSON: Expecting property name enclosed in double quotes, at character 1.",
            "JSON 无效：Expecting property name enclosed in double quotes，位置 1。",
        ),
    ],
)
def test_an_unreadable_body(body: bytes, english: str, chinese: str) -> None:
    refusal = refused(lambda: parse_json_object(body))

    assert isinstance(refusal, InvalidJSON)
    assert both(refusal) == (english, chinese)


def test_a_field_that_does_not_exist_is_named_in_the_language_of_the_reader() -> None:
    with translation.override(LANGUAGE), pytest.raises(exceptions.ValidationError) as caught:
        NewChat.read({"colour": "red"})

    with translation.override(LANGUAGE):
        assert convert_validation_error(caught.value).localized == "colour: 没有此字段。"


def test_why_the_database_cannot_be_reached() -> None:
    refusal = databases.build_database_refusal(OperationalError("connection refused"))

    assert both(refusal) == (
        "The database cannot be used: the connection was refused. Nothing was changed; try again "
        "soon.",
        "数据库：连接被拒绝。",
    )


def test_why_a_browser_was_refused() -> None:
    assert both(CsrfFailed(csrf.explain_csrf_failure("Referer checking failed - no Referer."))) == (
        "The browser sent no Referer header. Allow it for this site.",
        "没有 Referer。",
    )
    assert CsrfFailed().sentence.startswith("The X-CSRFToken header is missing or wrong.")


def test_messages_of_a_validation_are_read_in_the_language_of_the_reader() -> None:
    words = invitations.lazy_words(
        ValidationError([gettext_lazy("This name is taken. Choose another one.")])
    )

    assert both(invitations.InvitationRefused(reason=words)) == (
        "This name is taken. Choose another one.",
        "名称已占用。",
    )


def test_words_for_codes_are_in_the_language_of_the_reader() -> None:
    assert describe_loss("system_left_out:tool") == "System texts were left out."
    with translation.override(LANGUAGE):
        assert describe_loss("system_left_out:tool") == "省略了系统文本。"
        assert describe_loss("unheard_of:3") == "unheard_of:3"


def test_notices_of_the_live_bus_are_translated_for_each_reader() -> None:
    waiting = turn_notices.WAITING.format(until="10:11:12")

    assert turn_notices.localize_notice(waiting) == "Waiting for the provider until 10:11:12 UTC."
    with translation.override(LANGUAGE):
        assert turn_notices.localize_notice(waiting) == "等待至 10:11:12。"
        assert turn_notices.localize_notice(SENTENCE) == "正在更新状态。"
        assert turn_notices.localize_notice("") == ""
