"""Texts and web pages in older encodings are read as their authors wrote them."""

import pytest

from chats.files.text_encodings import SAMPLE_BYTES, decode_text

TEXTS = {
    "cp1252": [
        "Müller;Köln;12,5\nJäger;Düsseldorf;3",
        "Año nuevo, señor",
        "£5 – “quoted”",
        "naïve",
    ],
    "cp1251": ["Имя;Город\nИван;Москва", "Привет, как дела?"],
    "koi8_r": ["Привет, как дела? Всё хорошо."],
    "cp932": ["名前,住所\n田中,東京都", "こんにちは世界。売上;東京"],
    "cp949": ["이름,주소\n김철수,서울", "안녕하세요 세계"],
    "big5": ["姓名,地址\n王小明,臺北市"],
    "gb18030": ["姓名,地址\n王小明,北京市", "你好世界", "销售额", "发票金额一百元"],
    "cp1253": ["Καλημέρα κόσμε"],
    "cp1256": ["مرحبا بالعالم"],
    "utf-8": ["Grüße, 你好, Привет"],
    "utf-16": ["Grüße, 你好, Привет"],
}
CASES = [(encoding, text) for encoding, texts in TEXTS.items() for text in texts]


@pytest.mark.parametrize(("encoding", "text"), CASES)
def test_a_text_is_read_in_its_encoding(encoding: str, text: str) -> None:
    assert decode_text(text.encode(encoding)) == text


@pytest.mark.parametrize(("encoding", "text"), [case for case in CASES if len(case[1]) > 3])
def test_a_long_text_that_begins_without_special_letters_is_read(encoding: str, text: str) -> None:
    long = "id,name\n" + "1,x\n" * SAMPLE_BYTES + f"{text}\n" * 40
    assert decode_text(long.encode(encoding)) == long


@pytest.mark.parametrize(
    ("stated", "encoding"),
    [
        ('<meta charset="Shift_JIS">', "cp932"),
        ("<meta charset=euc-jp>", "euc_jp"),
        ("<META HTTP-EQUIV=Content-Type CONTENT='text/html; charset=windows-31j'>", "cp932"),
    ],
)
def test_a_page_is_read_in_the_encoding_that_it_states(stated: str, encoding: str) -> None:
    page = f"<html><head>{stated}</head><body>売上</body></html>"
    assert decode_text(page.encode(encoding), is_page=True) == page
    declared = '<?xml version="1.0" encoding="Shift_JIS"?>\n<html><body>売上</body></html>'
    assert decode_text(declared.encode("cp932"), is_page=True) == declared


@pytest.mark.parametrize("stated", ["iso-8859-1", "latin1", "windows-1252"])
def test_a_page_in_latin_1_may_have_quotation_marks_of_windows(stated: str) -> None:
    page = f'<meta charset="{stated}"><p>“Zoë” costs 5 €</p>'
    assert decode_text(page.encode("cp1252"), is_page=True) == page


@pytest.mark.parametrize("stated", ["utf-7", "unicode_escape", "zip", "idna", "no-such", "utf-8"])
def test_other_stated_encodings_are_ignored(stated: str) -> None:
    page = f'<meta charset="{stated}"><p>\\u0041+AEE- caf\u00e9</p>'
    assert decode_text(page.encode("cp1252"), is_page=True) == page
