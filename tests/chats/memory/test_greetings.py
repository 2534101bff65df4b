"""Greetings and thanks are distinguished from questions, in many languages."""

import pytest

from chats.memory.search.greetings import is_greeting

GREETINGS = """
Thank you!
Thanks a lot for your help
Thank you so much, everyone
Hi there
ok great
Got it, thanks.
Sounds good!
Will do, thanks
No problem
Happy birthday!
Thanks, have a great weekend
Have a nice day!
Ok, makes sense
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
Great, that helped
Cheers
Good night, sleep well
See you tomorrow
You're welcome
That makes sense
Guten Morgen
Gute Nacht!
Danke, das hat mir sehr geholfen
Bis morgen
Bonsoir
De rien
D'accord, merci
Adiós
adios
Hasta luego
Muchas gracias por la ayuda
Boa noite
Olá
Buona notte
Tot ziens
Tack så mycket
Dziękuję
Teşekkür ederim
İyi geceler
Доброе утро
До свидания
Дякую
助かりました
おやすみなさい
承知しました
晚安
不客气
明天见
수고하셨습니다
안녕히 계세요
شكرًا جزيلًا
صباح الخير
नमस्ते
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
Lisbon trams
Morning routine
Good restaurants in Rome
Thanks, and the hotel
Dreams about flying
Wir treffen uns morgen in Berlin
张三的生日
私の猫の名前
내 고양이 이름
اسم قطتي
what is my birthday
what was the problem
what have I done
was ist das Problem
what is new this year
my birthday is tomorrow
yes, my birthday is tomorrow
thanks, what was the problem
ok so what is my birthday
wer ist das
is it good
tomorrow
"""


@pytest.mark.parametrize("text", GREETINGS.strip().splitlines())
def test_a_greeting_asks_nothing(text: str) -> None:
    assert is_greeting(text)


@pytest.mark.parametrize("text", QUESTIONS.strip().splitlines())
def test_what_asks_is_no_greeting(text: str) -> None:
    assert not is_greeting(text)
