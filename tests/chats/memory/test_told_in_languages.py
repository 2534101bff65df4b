"""Statements about oneself are detected in many languages. Secrets, tasks and references are not.

The two lists are a benchmark: at least 95 % of the stored preferences must be correct. In each
language, at least 60 % of the statements must be stored.
"""

import pytest

from chats.memory.preferences.preference_patterns import extract_forget_requests, extract_statements
from chats.memory.preferences.sensitive import is_card, is_iban, is_secret
from chats.memory.preferences.stated_preferences import is_preference_named
from tests.chats.memory.stated_sentences import NOT_STATED, STATED

TOLD: dict[str, list[tuple[str, str | None]]] = {
    "English": [
        ("Remember that I live in Oslo.", "I live in Oslo"),
        ("Call me Dr. Smith", "Dr. Smith"),
        ("Please remember: I am allergic to nuts", "I am allergic to nuts"),
        ("My name is Prof. Anna Berg.", "Prof. Anna Berg"),
        ("Keep in mind that my son is called Finn.", "my son is called Finn"),
    ],
    "German": [
        ("Merk dir, dass ich in Wien wohne.", "ich in Wien wohne"),
        ("Ich heiße Dr. Weber.", "Dr. Weber"),
        ("Nenn mich Jürgen", "Jürgen"),
        ("Vergiss nicht, dass ich Vegetarier bin.", "ich Vegetarier bin"),
    ],
    "French": [
        ("Souviens-toi que j’habite à Lyon.", "j’habite à Lyon"),
        ("Retiens : je suis végétarienne.", "je suis végétarienne"),
        ("Appelle-moi Zoé.", "Zoé"),
        ("Je m'appelle Jean Dupont.", "Jean Dupont"),
        ("N'oublie pas que je travaille comme infirmier", "je travaille comme infirmier"),
        ("Rappelle-toi qu’il faut me tutoyer.", "il faut me tutoyer"),
    ],
    "Spanish": [
        ("Recuerda que vivo en Sevilla.", "vivo en Sevilla"),
        ("Llámame Pepe", "Pepe"),
        ("Me llamo Ana María.", "Ana María"),
        ("Ten en cuenta que soy vegetariano.", "soy vegetariano"),
        ("No olvides que trabajo como enfermera.", "trabajo como enfermera"),
    ],
    "Italian": [
        ("Ricorda che vivo a Torino.", "vivo a Torino"),
        ("Chiamami Gigi", "Gigi"),
        ("Mi chiamo Lucia Bianchi.", "Lucia Bianchi"),
        ("Tieni presente che sono vegano.", "sono vegano"),
        ("Non dimenticare che ho due figli.", "ho due figli"),
    ],
    "Portuguese": [
        ("Lembre-se de que moro em Recife.", "moro em Recife"),
        ("Me chama de Duda.", None),
        ("Meu nome é João Silva.", "João Silva"),
        ("Não esqueça que sou vegetariana.", "sou vegetariana"),
        ("Lembra que trabalho como pedreiro", "trabalho como pedreiro"),
    ],
    "Russian": [
        ("Запомни, что я живу в Казани.", "я живу в Казани"),
        ("Меня зовут Ольга.", "Ольга"),
        ("Называй меня Саша", "Саша"),
        ("Не забудь, что я вегетарианец.", "я вегетарианец"),
        ("Имей в виду, что я работаю врачом.", "я работаю врачом"),
    ],
    "Japanese": [
        ("覚えておいて：大阪に住んでいます。", "大阪に住んでいます"),
        ("私の名前は太郎です。", "太郎"),
        ("さくらと呼んでください。", "さくら"),
        ("猫を二匹飼っていることを覚えておいてください。", "猫を二匹飼っている"),
        ("ベジタリアンだと覚えておいて。", "ベジタリアンだ"),
    ],
    "Korean": [
        ("기억해 줘: 나는 부산에 살아.", "나는 부산에 살아"),
        ("제 이름은 민수입니다.", "민수"),
        ("지영이라고 불러 줘.", "지영"),
        ("내가 채식주의자라는 것을 기억해 주세요.", None),
        ("기억해: 나는 간호사로 일해", "나는 간호사로 일해"),
    ],
    "Arabic": [
        ("تذكر أنني أعيش في القاهرة.", "أنني أعيش في القاهرة"),
        ("اسمي ليلى.", "ليلى"),
        ("نادني سامي", "سامي"),
        ("لا تنس أن ابنتي تدرس الطب.", "ابنتي تدرس الطب"),
        ("تذكر: أنا نباتي.", "أنا نباتي"),
    ],
    "Chinese": [
        ("记住我住在上海。", "我住在上海"),
        ("叫我小明", "小明"),
        ("请记住：我吃素。", "我吃素"),
        ("我叫王芳。", "王芳"),
    ],
}
# None of these may be stored.
NOT_TOLD = [
    "Remember that.",
    "Remember this",
    "Please remember it!",
    "Remember that for later.",
    "Keep in mind this one, please",
    "Merk dir das.",
    "Souviens-toi que ça",
    "Recuerda que esto",
    "记住这个",
    "Call me Dr.",
    "Call me Mr",
    "My name is Prof.",
    "Remember that for this trip I want window seats",
    "Remember that this function returns a list",
    "Remember: in this chat we speak of Rome",
    "Remember that I am out today",
    "Merk dir, dass ich heute in Graz bin.",
    "Recuerda que mañana viajo a Lima",
    "Remember that my card is 4111 1111 1111 1111",
    "Remember: 5500-0055-5555-5559",
    "Remember that my account is DE89 3704 0044 0532 0130 00",
    "Remember my IBAN GB29NWBK60161331926819 please",
    "Remember that my key is sk-abcdefgh12345678",
    "Remember: ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "Remember AKIAIOSFODNN7EXAMPLE",
    "Remember that my passport number is X1234567",
    "Remember that my PIN is 4711",
    "Souviens-toi que mon mot de passe est chat",
    "Recuerda que mi contraseña es gato",
    "Запомни, что мой пароль кот",
    "记住我的密码是猫",
    "覚えておいて：パスワードは猫です",
    "기억해 줘: 비밀번호는 고양이야",
    "تذكر أن كلمة السر قطة",
    "Remember 123-45-6789",
    "Il a écrit « Souviens-toi que j’habite à Lyon ».",
    "Dice: «Recuerda que vivo en Sevilla»",
    "Sie sagte »Merk dir, dass ich in Wien wohne«.",
    "她说“记住我住在上海”。",
    "「覚えておいて：大阪に住んでいます」と言った。",
    "Ha detto ‹Ricorda che vivo a Torino›.",
    "Übersetze: Merk dir, dass ich in Wien wohne.",
    "Traduis : Souviens-toi que j’habite à Lyon.",
    "Te souviens-tu que j’habite à Lyon ?",
    "¿Recuerda que vivo en Sevilla?",
]


@pytest.mark.parametrize("language", TOLD)
def test_most_of_what_is_told_in_a_language_is_noted(language: str) -> None:
    found = [bool(extract_statements(text)) for text, _ in TOLD[language]]

    assert sum(found) / len(found) >= 0.6, [
        text for (text, _), was in zip(TOLD[language], found, strict=True) if not was
    ]


def test_what_is_noted_is_right() -> None:
    right = wrong = 0
    mistakes = []
    for text, told in (pair for pairs in TOLD.values() for pair in pairs):
        for telling in extract_statements(text):
            is_right = told is None or telling.text == told
            right, wrong = right + is_right, wrong + (not is_right)
            mistakes += [] if is_right else [(text, telling.text)]
    for text in NOT_TOLD:
        wrong += len(extract_statements(text))
        mistakes += [(text, telling.text) for telling in extract_statements(text)]

    assert right / (right + wrong) >= 0.95, mistakes


@pytest.mark.parametrize("language", STATED)
def test_many_forms_of_a_statement_are_noted(language: str) -> None:
    sentences = STATED[language].strip().splitlines()
    missed = [text for text in sentences if not extract_statements(text)]

    assert len(missed) <= 0.2 * len(sentences), missed


@pytest.mark.parametrize("language", NOT_STATED)
def test_few_other_sentences_are_noted(language: str) -> None:
    wrong = [text for text in NOT_STATED[language].strip().splitlines() if extract_statements(text)]

    assert len(wrong) <= 2, wrong


def test_of_all_noted_sentences_most_are_statements() -> None:
    counted = [
        sum(
            bool(extract_statements(text))
            for texts in listed.values()
            for text in texts.split("\n")
        )
        for listed in (STATED, NOT_STATED)
    ]

    assert counted[0] / sum(counted) >= 0.95


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("나는 견과류 알레르기가 있다는 것을 기억해 줘.", "나는 견과류 알레르기가 있다"),
        ("내가 색맹이라는 점을 잊지 마.", "내가 색맹"),
        ("제가 야간에 일한다는 사실을 기억해 주세요.", "제가 야간에 일한다"),
        ("تذكر أنني أسكن في تونس.", "أنني أسكن في تونس"),
        ("تذكر بأنني محام.", "أنني محام"),
        ("肉を食べないことを覚えておいてほしい。", "肉を食べない"),
        ("Remember you should answer in German.", "you should answer in German"),
        ("Keep in mind the replies must be short.", "the replies must be short"),
        ("Don't forget your answers should be short.", "your answers should be short"),
        ("Remember that Mr. Smith is my boss. He is 50.", "Mr. Smith is my boss"),
        ("Recuerda que el Sr. Ruiz es mi jefe.", "el Sr. Ruiz es mi jefe"),
        ("Remember that I work at U.S. Steel.", "I work at U.S. Steel"),
        ("Merk dir, dass ich am 3. Mai Geburtstag habe.", "ich am 3. Mai Geburtstag habe"),
        ("Merke dir: Ich wohne im 2. stock. Danke", "Ich wohne im 2. stock"),
        ("Remember that my son is 12. Which books fit?", "my son is 12"),
        ("Nennen Sie mich Frau Prof. Dr. Huber.", "Frau Prof. Dr. Huber"),
        ("Chiamami dott. Rossi.", "dott. Rossi"),
        ("Du kannst mich Tom nennen.", "Tom"),
        ("Merk dir, dass ich kein Fleisch esse.", "ich kein Fleisch esse"),
        ("Меня зовут Том", "Том"),
    ],
)
def test_a_noted_text_consists_of_whole_words(text: str, told: str) -> None:
    assert [found.text for found in extract_statements(text)] == [told]


@pytest.mark.parametrize("text", ["Call method Foo", "Call Melanie", "Call me Monday."])
def test_a_word_that_begins_like_a_request_is_no_name(text: str) -> None:
    assert extract_statements(text) == []


@pytest.mark.parametrize(
    ("text", "forgotten"),
    [
        ("Don’t remember that I live in Oslo.", "I live in Oslo"),
        ("Forget my cat.", "my cat"),
        ("Vergessen Sie, dass ich in Wien wohne.", "ich in Wien wohne"),
        ("Olvídate de que vivo en Sevilla.", "vivo en Sevilla"),
        ("Esqueça-se de que moro em Recife.", "moro em Recife"),
        ("Забудьте, пожалуйста, что я живу в Казани.", "я живу в Казани"),
        ("大阪に住んでいることを忘れてください。", "大阪に住んでいる"),
        ("내가 부산에 산다는 것을 잊어 줘.", "내가 부산에 산다"),
        ("انس أنني أعيش في القاهرة.", "أنني أعيش في القاهرة"),
        ("请忘掉我住在上海。", "我住在上海"),
        ("忘掉我住在上海这件事吧。", "我住在上海这件事吧"),
    ],
)
def test_requests_to_forget_are_found_in_many_forms(text: str, forgotten: str) -> None:
    assert extract_forget_requests(text) == [forgotten]
    assert extract_statements(text) == []


@pytest.mark.parametrize(
    "text",
    ["大阪に住んでいることを忘れないで。", "내가 부산에 산다는 것을 잊지 마.",
     "不要忘记我住在上海。", "لا تنس أنني أعيش في القاهرة.", "Did you forget that I live in Oslo?",
     "Forget it"],
)  # fmt: skip
def test_a_request_to_remember_is_no_request_to_forget(text: str) -> None:
    assert extract_forget_requests(text) == []


@pytest.mark.parametrize(
    ("said", "text", "is_named"),
    [
        ("I live in Oslo now", "I live in Oslo", True),
        ("also the milk", "Al", False),
        ("my cart", "my car", False),
        ("大阪に住んでいる", "私は大阪に住んでいる", True),
        ("我住在上海这件事", "我住在上海", True),
        ("住在", "我住在上海", False),
    ],
)
def test_a_preference_is_named_by_whole_words(said: str, text: str, *, is_named: bool) -> None:
    assert is_preference_named(said, text) is is_named


@pytest.mark.parametrize("text", NOT_TOLD)
def test_pointers_errands_secrets_and_quotations_are_not_noted(text: str) -> None:
    assert extract_statements(text) == []


@pytest.mark.parametrize(
    "text",
    ["4111111111111111", "card 378282246310005", "3530 1113 3330 0000", "NL91 ABNA 0417 1643 00",
     "FR14 2004 1010 0505 0001 3M02 606", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0", "my pin code",
     "Zq3t8Rf2Lm9Xw1Vb6Nc4Kj7Hd5"],
)  # fmt: skip
def test_secrets_are_recognised(text: str) -> None:
    assert is_secret(text)


@pytest.mark.parametrize(
    "text",
    ["4111–1111–1111–1111",
     "4111  1111  1111  1111",
     "4111 - 1111 - 1111 - 1111",
     "4111,1111,1111,1111",
     "4111_1111_1111_1111",
     "４１１１－１１１１－１１１１－１１１１",
     "٤١١١ ١١١١ ١١١١ ١١١١",
     "4111\u200b1111\u200b1111\u200b1111",
     "DE89-3704-0044-0532-0130-00",
     "ＤＥ８９ ３７０４ ００４４ ０５３２ ０１３０ ００",
     "IBANDE89370400440532013000",
     "NO93 8601 1117 947",
     "xapp-1-A0123456789-abc",
     "SG.abcdefghijklmnop.qrstuvwxyzABCDEF",
     "tvly-abcdefghijklmnop",
     "gsk_abcdefghijklmnop1234",
     "github_pat_11ABCDEFG0aBcDeFg",
     "-----BEGIN PGP PRIVATE KEY BLOCK-----",
     "postgres://bob:hunter2@db.example.com/x",
     "Bearer abcdefghijklmnop",
     "my passport is X1234567",
     "passport: C01X00T47",
     "mon passeport est 09AB12345",
     "mein Reisepass ist C01X00T47",
     "my passwords are all hunter2",
     "my wifi key is hunter22",
     "my login is bob / hunter2",
     "Logins: bob, hunter2",
     "mein Login ist bob / hunter2",
     "my pins are 4711 and 0815",
     "meine Passwörter sind katze",
     "mis contraseñas son gato",
     "mon mdp est chat",
     "minhas senhas são gato",
     "мой пин 1234",
     "我的身份证号是 11010519491231002X",
     "비번은 1234",
     "my national insurance number is QQ 12 34 56 C",
     "my seed phrase is witch collapse practice",
     "my 2FA code is 123456",
     "my credit card is 4111 1111 1111 1112",
     "my bank account number is 12345678",
     "meu CPF é 529.982.247-25",
     "my SSN is 078 05 1120"],
)  # fmt: skip
def test_secrets_are_recognised_in_other_spellings(text: str) -> None:
    assert is_secret(text)


@pytest.mark.parametrize(
    "text",
    ["My order is 4111111111111112", "I was born on 14 November 1984", "Call 0800 123 456 789",
     "I work with Django 5 and Python 3.13", "DE is my country", "version 2026.11.26-rc1",
     "I like internationalisation", "I use UTF16 for all of my old files and the EU27 as well",
     "my passport is red", "I have had a bank account since 2019", "I have 3 credit cards",
     "I collect enamel pins", "The login page is my favourite part", "I love login island"],
)  # fmt: skip
def test_ordinary_texts_are_no_secrets(text: str) -> None:
    assert not is_secret(text)


def test_check_digits_decide() -> None:
    assert is_card("4242424242424242")
    assert not is_card("4242424242424241")
    assert not is_card("0000000000000000")
    assert is_iban("GB29 NWBK 6016 1331 9268 19 please")
    assert not is_iban("GB29 NWBK 6016 1331 9268 18")
