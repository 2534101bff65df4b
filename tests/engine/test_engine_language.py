"""Language detection, which returns no result when unsure."""

import pytest

from contextpolicy.engine.text.language import (
    detect_text_language,
    is_foreign_to_chat,
    is_other_language,
)

TEXTS = {
    "en": "We decided that the train to Oslo is the best choice "
    "for this trip, and it will be paid.",
    "de": "Wir haben entschieden, dass der Zug nach Oslo die beste "
    "Wahl für die Reise ist und nicht das Auto.",
    "fr": "Nous avons décidé que le train pour Oslo est le meilleur "
    "choix et que les billets sont dans le sac.",
    "es": "Hemos decidido que el tren para Oslo es la mejor opción "
    "y que los billetes no son caros para una familia.",
    "it": "Abbiamo deciso che il treno per Oslo è la scelta migliore "
    "e che gli altri sono nel programma della gita.",
    "pt": "Decidimos que o trem para Oslo é a melhor escolha e "
    "que os bilhetes não são caros para uma família.",
    "nl": "We hebben besloten dat de trein naar Oslo het beste "
    "is voor een reis en dat het niet te duur wordt.",
    "zh": "我们决定坐火车去奥斯陆，因为这样比较便宜，也更舒服。",
    "ja": "オスロまで電車で行くことにしました。安くて快適だからです。とても楽しみにしています。",
    "ko": "우리는 오슬로까지 기차로 가기로 결정했습니다. 저렴하고 편안하기 때문입니다.",
    "cyrillic": "Мы решили поехать в Осло на поезде, потому что это дешевле и удобнее для всех.",
    "el": "Αποφασίσαμε να πάμε στο Όσλο με το τρένο γιατί είναι πιο φθηνό και άνετο.",
}


@pytest.mark.parametrize("language", TEXTS)
def test_a_clear_text_is_told(language: str) -> None:
    assert detect_text_language(TEXTS[language]) == language


@pytest.mark.parametrize(
    "text",
    ["", "ok", "42 + 17 = 59", "Oslo Bergen Trondheim Stavanger Molde Bodø Narvik Tromsø", "好的"],
    ids=ascii,
)
def test_nothing_is_said_of_a_text_that_is_not_clear(text: str) -> None:
    assert detect_text_language(text) == ""


def test_half_and_half_is_not_clear() -> None:
    assert (
        detect_text_language("Мы решили поехать в Осло на поезде " + "we take a train to Oslo now")
        == ""
    )


def test_code_addresses_and_headings_say_nothing_about_the_language() -> None:
    around = "## Facts\n## The list of the things that are to be done\n" + TEXTS["de"]
    code = "\n```\nif the and is are was of to with for that this have has not will\n```\n"
    assert detect_text_language(around + code + "see https://the-and.is/are/was/of/to") == "de"


def test_inv_34_two_clear_languages_differ_and_nothing_else_does() -> None:
    assert is_other_language(TEXTS["de"], TEXTS["en"])
    assert not is_other_language(TEXTS["de"], TEXTS["de"])
    assert not is_other_language(TEXTS["de"], "ok")
    assert not is_other_language("ok", TEXTS["de"])


ENGLISH_REPLY = (TEXTS["en"] + " ") * 12
CONTRACT = "The tenant pays the rent for the flat and the owner of the house is to repair it. " * 90


@pytest.mark.parametrize("language", ["zh", "ja", "ko", "de", "fr", "cyrillic", "el"])
@pytest.mark.parametrize("cause", ["replies", "contract"])
def test_the_language_of_the_user_is_a_language_of_the_chat(language: str, cause: str) -> None:
    mine, replies = [TEXTS[language]] * 6, [ENGLISH_REPLY] * 6
    if cause == "contract":
        mine, replies = [CONTRACT, *[TEXTS[language]] * 3], [ENGLISH_REPLY] * 3
    assert not is_foreign_to_chat(TEXTS[language] * 3, user_texts=mine, other_texts=replies)
    assert not is_foreign_to_chat(TEXTS["en"], user_texts=mine, other_texts=replies)
    other = "es" if language != "es" else "it"
    assert is_foreign_to_chat(TEXTS[other], user_texts=mine, other_texts=replies)


def test_a_language_with_a_fifth_of_the_messages_is_one_of_the_chat() -> None:
    mine, replies = [TEXTS["en"]] * 3, [*[ENGLISH_REPLY] * 4, *[TEXTS["fr"] * 4] * 2]
    assert not is_foreign_to_chat(TEXTS["fr"], user_texts=mine, other_texts=replies)
    replies = [*[ENGLISH_REPLY] * 40, TEXTS["fr"] * 4]
    assert is_foreign_to_chat(TEXTS["fr"], user_texts=mine, other_texts=replies)
    assert not is_foreign_to_chat("ok", user_texts=mine, other_texts=replies)
    assert not is_foreign_to_chat(TEXTS["fr"], user_texts=["ok"] * 900, other_texts=[])


def test_messages_of_a_long_chat_are_read_up_to_its_end() -> None:
    replies = [*[ENGLISH_REPLY] * 300, *[TEXTS["de"] * 5] * 300]
    assert not is_foreign_to_chat(TEXTS["de"], user_texts=["ok"], other_texts=replies)


def test_english_with_a_japanese_word_is_english() -> None:
    assert detect_text_language(ENGLISH_REPLY + "ありがとうございます") == "en"
    assert detect_text_language("このプロジェクトは Django と PostgreSQL を使います。" * 3) == "ja"
