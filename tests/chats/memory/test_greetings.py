"""Greetings and thanks are distinguished from questions, in many languages."""

import pytest

from chats.memory.search.question import is_greeting

GREETINGS = """
Thank you!
Thanks a lot for your help
Thank you so much, everyone
Hi there
ok great
Got it, thanks.
Sounds good!
Good morning!
Merci beaucoup !
Vielen Dank
Danke schön
Muchas gracias por tu ayuda
Muito obrigado!
Grazie mille
Большое спасибо
谢谢你
好的，谢谢您！
非常感谢
明白了
ありがとうございます。
了解です
정말 감사합니다
ขอบคุณครับ
👍
"""
QUESTIONS = """
Thanks. When does the ferry leave?
Thank Anna for the ring
Which ring does the heron wear?
And the second one?
Is it good?
Will it do that?
What did you do that day?
谢谢，渡船几点开？
你好世界是什么
会议是哪天
ありがとうの意味は何ですか
渡し船は何時に出ますか
Wann fährt die Fähre?
Danke, und der Zug nach Rom?
Merci, et le train de Rome ?
"""


@pytest.mark.parametrize("text", GREETINGS.strip().splitlines())
def test_a_greeting_asks_nothing(text: str) -> None:
    assert is_greeting(text)


@pytest.mark.parametrize("text", QUESTIONS.strip().splitlines())
def test_what_asks_is_no_greeting(text: str) -> None:
    assert not is_greeting(text)
