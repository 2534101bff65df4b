"""Parses a question: the words to search for, the dates it mentions, and words to ignore."""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from chats.memory.search.days import Range, parse_time_ranges
from chats.memory.search.words import Word, find_words, load_stop_words

# Maximum characters and significant words of a question.
MOST_CHARACTERS = 2_000
MOST_WORDS = 32
# Maximum number of words, including parts of camelCase words and pieces in scripts without spaces.
MOST_PIECES = 128
# Maximum number of full words, including grammar words.
MOST_FULL = 64
# Minimum characters of a prefix; two pieces for Thai, whose pieces have three characters.
SHORTEST_BEGINNING = 2
_LETTERS = re.compile(r"[^\W_]+")
_SENTENCE_END = re.compile(r"[.?!;](?=\s)|[。．？！；؟\n]")
# Greetings and thanks, which carry no information.
_GREETED = """
    hi hello hey hallo bonjour hola ciao salut thanks thank thx danke dank merci gracias grazie
    obrigado obrigada please bitte ok
    okay yes no yeah nope bye goodbye morning evening good great nice cool test
    привет спасибо здравствуйте да нет 你好 您好 谢谢 谢 好的 こんにちは ありがとう はい 안녕
    안녕하세요 감사합니다 네 สวัสดี ขอบคุณ مرحبا شكرا سلام नमस्ते धन्यवाद
"""
_GREETINGS = frozenset(_GREETED.split())
# Words that may accompany a greeting or a short agreement without making it a question.
_BESIDE = """
    thank you all there everyone everybody team folks again so very much a lot lots million for the
    your that this it help and too then now nice day evening night weekend got understood perfect
    wonderful awesome excellent sounds good will do sure cheers ty thankyou appreciated appreciate
    helped helps helpful helping fine right true exactly indeed agreed welcome re s m ll ve i see
    later soon tomorrow talk well have had one yourself sleep sweet dreams afternoon no not problem
    worries worry at my pleasure bad sorry apologies wow haha hahaha lol great brilliant fantastic
    amazing lovely cool really just what needed is was are makes sense works worked me to us care
    take congrats congratulations happy birthday new year merry christmas holidays bye yep yup np
    hiya howdy greetings alright absolutely definitely certainly course of yay done
    dir euch ihnen vielen sehr schön schon zusammen alles klar gut guten gute tag tage abend morgen
    nacht mittag wochenende für die hilfe lieben liebe grüße gruß das der hat geholfen hilft mir so
    ist war passt genau richtig stimmt super toll prima perfekt wunderbar ausgezeichnet klasse
    auf wiedersehen bis bald später dann schlaf schlafen dich auch kein problem keine ursache gern
    gerne geschehen entschuldigung verstanden einverstanden servus moin tschüss tschüs herzlichen
    glückwunsch frohe weihnachten einen wünsche ich schönen noch ja nein doch grüß gott
    beaucoup infiniment à tous bien merci d accord parfait bon bonne journée soirée nuit mille pour
    ton votre aide bonsoir coucou de rien je vous en prie super génial excellent c est noté compris
    au revoir bientôt demain tout oui non pas souci pardon désolé désolée très gentil
    muchas muchísimas mil por tu su ayuda buen buenos buenas día días tardes noches perfecto vale
    claro nada adiós hasta luego mañana pronto entendido genial sí de acuerdo estupendo lo siento
    muy amable la el
    mille tutti molte buongiorno buonasera buonanotte perfetto va bene prego arrivederci a presto
    domani capito certo sì d'accordo notte buona ottimo benissimo di niente scusa
    muito bom boa dia olá oi tarde noite de nada até logo amanhã breve tchau entendi certo sim não
    perfeito ótimo valeu desculpa
    goedemorgen goedenavond goedendag welterusten dag dank je wel u bedankt graag gedaan tot ziens
    morgen prima goed begrepen ja nee hoi doei
    большое огромное всем понятно отлично хорошо доброе утро добрый день вечер доброй спокойной
    ночи ночь пока до свидания завтра встречи пожалуйста не за что ясно понял поняла супер
    прекрасно замечательно ладно извини извините вам тебе благодарю
    cześć dzień dobry dobranoc wieczór dziękuję dzięki bardzo proszę tak nie świetnie do widzenia
    дякую привіт добрий ранок так ні
    merhaba selam günaydın iyi geceler akşamlar günler teşekkürler teşekkür ederim tamam evet hayır
    hej hejsan tack tack så mycket god morgon natt bra hej då ahoj děkuji dobrý den
    halo terima kasih selamat pagi malam siang xin chào cảm ơn bạn nhiều tạm biệt
    너무 정말 고마워요 고맙습니다 고마워 안녕히 계세요 가세요 주무세요 잘 자요 자 수고하셨습니다
    수고하세요 수고했어요 예 응 알겠습니다 알겠어요 알았어요 좋아요 좋습니다 좋네요 그래요 괜찮아요
    천만에요 반갑습니다 반가워요 최고예요 도움이 되었습니다 됐어요 많이 대단히
    죄송합니다 미안해요 내일 봐요
    لك جزيلا أهلا وسهلا صباح مساء الخير النور تصبح على خير مع السلامة نعم لا حسنا تمام ممتاز عفوا
    السلام عليكم وعليكم إلى اللقاء رائع جدا من فضلك
    आपका बहुत शुभ रात्रि प्रभात ठीक है अच्छा हाँ नहीं अलविदा शुक्रिया
"""
# Greetings in scripts without spaces, with polite endings.
_WIDE_GREETINGS = re.compile(
    "(?:どうも)?ありがとう(?:ございます|ございました|ね)?|感謝(?:します|しています)?|おはよう(?:ございます)?|こんばんは|"
    "こんにちは|おやすみ(?:なさい)?|さようなら|またね|また(?:明日|後で|あとで)|じゃあね?|"
    "了解(?:です|しました)?|承知(?:です|しました|いたしました)|わかりました|分かりました|わかった|分かった|なるほど|"
    "お疲れ(?:様|さま)(?:です|でした)?|よろしく(?:お願いします)?|お願いします|(?:とても)?助かり(?:ました|ます)|助かる|"
    "すみません|ごめん(?:なさい)?|いいですね|すごい(?:です)?|素晴らしい(?:です)?|完璧(?:です)?|はい|ええ|うん|いいえ|どうも|"
    "どういたしまして|大丈夫(?:です)?|その通り(?:です)?|そうですね?|[ねよ]|"
    "非常感谢|十分感谢|多谢|感谢|感謝|谢谢|謝謝|谢了|多謝|辛苦了?|你好|您好|大家好|早上好|上午好|中午好|下午好|晚上好|"
    "早安|午安|晚安|早啊?|好的|好吧|好呀|明白了?|收到|知道了|懂了|了解|太好了|太棒了|很好|不错|真棒|厉害|"
    "没问题|没事|没关系|不客气|不用谢|再见|拜拜|回头见|明天见|下次见|一会见|是的|对的?|嗯+|哦+|哈+|"
    "对不起|抱歉|不好意思|麻烦了?|帮了大忙|[你您啦了呀啊哦的很就行]|"
    "ขอบคุณ(?:มาก|ครับ|ค่ะ|คะ)*|สวัสดี(?:ครับ|ค่ะ)?|ราตรีสวัสดิ์|ลาก่อน|ครับ|ค่ะ|ใช่|โอเค"
)


def _fold_letters(text: str) -> str:
    """Return text in lower case without accents and vowel marks, as people often type it."""
    parts = unicodedata.normalize("NFKD", text.casefold())
    plain = "".join(one for one in parts if not unicodedata.category(one).startswith("M"))
    return unicodedata.normalize("NFC", plain)


_GREETING_WORDS = frozenset(_LETTERS.findall(_fold_letters(f"{_GREETED} {_BESIDE}")))
# First-person words, then those of scripts without spaces or with vowel signs that are not letters
# here.
_ONESELF = """
    i me my mine myself we our ours ich mich mir mein meine meinen meinem meiner meines wir unser
    unsere unseren unserem unserer je j moi mon ma mes nous notre nos yo mi mis mío mía nosotros
    nuestro nuestra io mio mia miei mie noi nostro nostra eu meu minha meus minhas ik mij mijn
    я мне меня мной мой моя моё мое мои моей моего моих мы нас нам наш наша наши
    나 나는 내 내가 나의 저 저는 제 제가 우리 أنا لي
"""
_OF_ONESELF = frozenset(_ONESELF.split())
_IN_WORDS = re.compile("[我咱私僕俺]|ฉัน|ผม|मैं|मेर|मुझ")
_POSSESSIVE = re.compile("['’]s$", re.IGNORECASE)
# Words that begin questions and requests, and words that occur anywhere in a question in scripts
# without spaces.
_BEGINNINGS = """
    what what's who who's whom whose when where which why how did does do is are was were can could
    would should have has had will tell list show find remind summarise summarize explain describe
    give name compare recall
    was wer wem wen wessen wann wo woher wohin welche welcher welches welchen warum wieso wie hat
    hatte ist sind kannst können nenne zeige zeig sag sage erzähl erkläre liste fasse
    qui que quoi quand où quel quelle quels quelles pourquoi comment combien dis montre rappelle
    explique résume qué quién quiénes cuándo dónde cuál cuáles cómo cuánto cuánta cuántos cuántas
    por dime muestra recuérdame explica resume che cosa chi quando dove quale quali perché come
    quanto dimmi quem onde qual quais como diga lembre wat waar wanneer welk waarom hoe
    что кто когда где какой какая какое какие почему как сколько чей скажи покажи напомни расскажи
    무엇 뭐 누가 누구 언제 어디 어느 왜 어떻게 몇 ما ماذا من متى أين كيف لماذا هل كم
"""
_STARTS = frozenset(_BEGINNINGS.split())
_INSIDE = re.compile(
    "什么|甚麼|什麼|谁|誰|哪|多少|几|为何|怎么|怎麼|如何|吗|嗎|请问|告诉|列出|总结|"
    "何|いつ|どこ|どの|どれ|なぜ|どう|教えて|ですか|ますか|"
    "무엇|누구|언제|어디|알려|습니까|나요|อะไร|ใคร|เมื่อไ|ที่ไหน|ทำไม|อย่างไร"
)
_FIRST_WORD = re.compile(r"\W*([\w'’-]+)")


@dataclass(frozen=True, slots=True)
class ParsedQuestion:
    """A parsed question.

    `telling`: significant stems with their positions. `full`: full words, including grammar words.
    `beginning`: the incomplete last word of a question that is being typed.
    """

    text: str
    telling: Mapping[str, Sequence[tuple[int, int]]]
    full: Sequence[str]
    pairs: Sequence[tuple[str, str]]
    beginning: str
    days: Sequence[Range]
    ignored: Sequence[str]
    # The user asks about themselves.
    is_of_oneself: bool = False
    # The words of the question in the form in which they may occur in names.
    names: frozenset[str] = frozenset()

    def units(self, shared: Sequence[str]) -> list[str]:
        """Return the words of the question that also occur in a text, as written in the question.

        Overlapping pieces count as one word.
        """
        places = [place for stem in shared for place in self.telling.get(stem, ())]
        taken: list[tuple[int, int]] = []
        for first, last in sorted(places, key=lambda place: (place[0] - place[1], place[0])):
            if all(last <= start or first >= end for start, end in taken):
                taken.append((first, last))
        written = [self.text[first:last] for first, last in sorted(taken)]
        return list(dict.fromkeys(written))


def parse_question(text: str, *, at: datetime, is_typed: bool = False) -> ParsedQuestion:
    """Return the parsed question; `is_typed`: its last word may be a prefix.

    `at`: the time of the question in the time zone of the user, in which "yesterday" is meant.

    If it is longer than the limits, the sentences that ask are searched first: a question often
    follows the long text that it is about.
    """
    text = shorten_question(text.replace("\x00", " "))
    found = find_words(text)
    kept, ignored = select_searched_words(select_significant_words(found), text)
    return ParsedQuestion(
        text=text,
        telling=kept,
        full=list_full_words(found, kept),
        pairs=[pair for pair in list_word_pairs(found) if kept.keys() & set(pair)],
        beginning=get_typed_prefix(found, text) if is_typed else "",
        days=parse_time_ranges(text, at=at),
        ignored=ignored,
        is_of_oneself=is_about_oneself(text),
        names=frozenset(strip_possessive(word, text) for word in found if word.full),
    )


def shorten_question(text: str) -> str:
    """Return the beginning and the end of a text, together at most `MOST_CHARACTERS`."""
    if len(text) <= MOST_CHARACTERS:
        return text
    half = MOST_CHARACTERS // 2
    return f"{text[:half]}\n{text[1 - half :]}"


def select_searched_words(
    words: Sequence[Word], text: str
) -> tuple[Mapping[str, list[tuple[int, int]]], list[str]]:
    """Return the stems to search with their positions in order, and the words above the limit."""
    kept: dict[str, list[tuple[int, int]]] = {}
    ignored: list[str] = []
    number: float = 0
    for some in rank_sentences(words, text):
        end = kept_end = 0
        for word in some:
            is_part = word.start < end
            end = max(end, word.end)
            if word.stem not in kept:
                number += 0 if is_part else compute_word_share(word)
                # The parts of words within the limit are kept too.
                is_above = number > MOST_WORDS and not (is_part and word.end <= kept_end)
                if is_above or len(kept) >= MOST_PIECES:
                    if not is_part:
                        ignored.append(text[word.start : word.end])
                    continue
            kept_end = max(kept_end, word.end)
            kept.setdefault(word.stem, []).append((word.start, word.end))
    in_order = sorted((min(places), stem) for stem, places in kept.items())
    return {stem: sorted(kept[stem]) for _, stem in in_order}, list(dict.fromkeys(ignored))


def compute_word_share(word: Word) -> float:
    """Return 0.5 for a character of a script whose words have about two of them, otherwise 1."""
    return 0.5 if not word.full and word.end - word.start == 1 else 1.0


def rank_sentences(words: Sequence[Word], text: str) -> Sequence[Sequence[Word]]:
    """Return the words by sentence: first those that ask and a short first one, then the others."""
    ends = [end.end() for end in _SENTENCE_END.finditer(text)]
    bounds = [0, *ends, len(text)]
    sentences: dict[int, list[Word]] = {}
    for word in words:
        sentences.setdefault(bisect_right(ends, word.start), []).append(word)
    first = min(sentences, default=0)

    def rank(index: int) -> tuple[bool, int]:
        is_short_first = index == first and len(sentences[index]) < MOST_WORDS // 2
        asks = is_question_or_request(text[bounds[index] : bounds[index + 1]])
        return not (is_short_first or asks), index

    return [sentences[index] for index in sorted(sentences, key=rank)]


def list_full_words(
    found: Sequence[Word], kept: Mapping[str, Sequence[tuple[int, int]]]
) -> list[str]:
    """Return the full words of a question, those with a searched stem first."""
    full = [word for word in found if word.full]
    ranked = sorted(full, key=lambda word: word.stem not in kept) if len(full) > MOST_FULL else full
    return list(dict.fromkeys(word.full for word in ranked))[:MOST_FULL]


def count_question_words(text: str) -> float:
    """Return the number of words; in scripts without spaces, the number they probably have."""
    number = each = 0.0
    end = 0
    for word in find_words(text):
        if word.start >= end:
            number += compute_word_share(word)
            # Thai has about four characters a word; its next pieces add one each.
            each = 0.0 if word.full else 0.25
        elif word.end > end:
            number += each
        end = max(end, word.end)
    return number


def strip_possessive(word: Word, text: str) -> str:
    """Return a word without its possessive ending: *Ann* for *Ann's*."""
    is_possessive = _POSSESSIVE.search(text[word.start : word.end]) is not None
    return word.full.removesuffix("s") if is_possessive else word.full


def is_about_oneself(text: str) -> bool:
    """Return True if the text has first-person words, such as *I* or *my*."""
    words = {run[0].casefold() for run in _LETTERS.finditer(text)}
    return not words.isdisjoint(_OF_ONESELF) or _IN_WORDS.search(text) is not None


def select_significant_words(found: Sequence[Word]) -> Sequence[Word]:
    """Return the significant words; all words if none is significant."""
    telling = [word for word in found if word.stem not in load_stop_words()]
    return telling or found


def list_word_pairs(found: Sequence[Word]) -> Iterator[tuple[str, str]]:
    """Yield pairs of neighbouring words that are not both grammar words."""
    for first, second in pairwise(found):
        if not {first.stem, second.stem} <= load_stop_words() and first.end <= second.start:
            yield first.stem, second.stem


def get_typed_prefix(found: Sequence[Word], text: str) -> str:
    """Return the last word if it is still being typed; otherwise empty."""
    whole = [word for word in found if word.full]
    if not whole or whole[-1].end < len(text) or len(whole[-1].full) < SHORTEST_BEGINNING:
        return ""
    return whole[-1].full


def is_greeting(text: str) -> bool:
    """Return True if the text only greets, thanks or agrees, leaving nothing to search for.

    This includes text without letters and digits, such as an emoji.
    """
    if any(mark in text for mark in "?？؟"):
        return False
    words = _LETTERS.findall(_fold_letters(_WIDE_GREETINGS.sub(" ", text)))
    return all(word in _GREETING_WORDS for word in words)


def mask_greetings(text: str) -> str:
    """Return the text with greetings replaced by spaces."""
    return _LETTERS.sub(
        lambda run: " " * len(run[0]) if run[0].casefold() in _GREETINGS else run[0], text
    )


def is_question_or_request(text: str) -> bool:
    """Return True if the text has a question mark, or begins as a question or request.

    In scripts without spaces, the words that ask may be anywhere. A request such as "Tell me …" or
    "列出…" is a question too.
    """
    first = _FIRST_WORD.match(text.casefold())
    starts = first is not None and first.group(1) in _STARTS
    return starts or any(mark in text for mark in "?？؟") or bool(_INSIDE.search(text))
