"""Questions and requests are recognised after greetings, polite and connecting words."""

import pytest

from chats.memory.search.asking import is_question_or_request

ASKED = """
List all the books I have finished
Please list all the books I have finished
So which books have I finished
And when did she move
Hey, what was the name of the plumber
Actually, who was the plumber
I need the address of the plumber
Now give me the address
Also, how many books were there
Ok, and could you tell me the address
I finished the chapter. Now tell me the next one
Bitte nenne alle Bücher
Und wie hieß der Klempner
Ich brauche die Adresse des Klempners
S'il te plaît, rappelle-moi l'adresse
Et où habite-t-elle
J'ai besoin de l'adresse du plombier
Por favor, dime la dirección
Y cuándo se mudó
Per favore, ricordami l'indirizzo
E onde ela mora
Пожалуйста, напомни адрес
А когда она переехала
Мне нужен адрес сантехника
أخبرني عن عنوان السباك
ومتى انتقلت
请列出所有的书
那给我地址
บอกชื่อหนังสือทั้งหมด
住所を教えて
주소 좀 알려 주세요
मुझे पता बताओ
"""
STATED = """
Thank you so much
And I moved to Lisbon in May
So we finished the book
Well, she liked the hotel
Und ich bin nach Rom gezogen
Et je suis arrivée à Rome
Пожалуйста
ขอบคุณมาก
请假三天
Now I live in Rome
"""


@pytest.mark.parametrize("text", ASKED.strip().splitlines())
def test_leading_words_do_not_hide_a_question(text: str) -> None:
    assert is_question_or_request(text)


@pytest.mark.parametrize("text", STATED.strip().splitlines())
def test_a_statement_with_leading_words_asks_nothing(text: str) -> None:
    assert not is_question_or_request(text)
