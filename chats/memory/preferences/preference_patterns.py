"""Finds preferences that a person states in a message, literally and by rules.

A statement counts only at the beginning of a sentence of the first paragraph, before
any colon, and outside code and quotations. Messages that may be pastes are skipped.
Documents, quotations and other speakers do not count as the person's statements. Each
text is a literal part of the message.
"""

import re
from typing import NamedTuple

from chats.memory.preferences.sensitive import is_secret
from contextpolicy.engine.text import names

# In characters: a longer message may be a paste, and a longer text is not a preference.
LONGEST_MESSAGE = 1_000
LONGEST_TEXT = 200
SHORTEST_TEXT = 2

_HIDDEN = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]*`|^[ \t]*>[^\n]*|\"[^\"\n]*\"|“[^”\n]*”|„[^“”\n]*[“”]"
    r"|«[^»\n]*»|»[^«\n]*«|‹[^›\n]*›|‘[^’\n]*’(?!\w)|「[^」\n]*」|『[^』\n]*』|《[^》\n]*》"
    r"|(?<!\w)'[^'\n]*'(?!\w)",
    re.DOTALL | re.MULTILINE,
)
_PARAGRAPH_END = re.compile(r"\n[ \t\r]*\n")
_TITLES = r"dr|prof|mrs?|ms|mx|st|herr|frau|hr|fr|sra?|srta|sig|mme|mlle|dott|dra?|д-р"
# A full stop inside a word or after a title does not end a sentence.
_BEHIND_A_TITLE = "|".join(
    rf"(?<=\b{title})"
    for title in ("dr", "mr", "ms", "st", "fr", "sr", "prof", "mrs", "sra", "dra")
)
_SENTENCE = re.compile(
    rf"(?:[^.!?。！？؟\n]|\.(?=\w)|(?:{_BEHIND_A_TITLE})\.(?= ))+[.!?。！？؟]*", re.IGNORECASE
)
_POLITE = (
    r"(?:(?:please|pls|bitte|ok(?:ay)?|hi|hello|hallo|s[’']il (?:te|vous) pla[iî]t|por favor"
    r"|per favore|пожалуйста|请|請|من فضلك)[,，!،]?\s*)*"
)
_JOINT = r"(?:\s*[:：,，،]\s*|\s+)"
_REMEMBER = re.compile(
    rf"\s*{_POLITE}(?:"
    rf"(?:always\s+)?remember(?:{_JOINT}that\b|\s*[:,])?\s+"
    r"(?!(?:when|how|what|who|why|where|if|to|the time|me\b|my last|our|us\b))"
    r"|(?:keep|bear)\s+in\s+mind(?:\s+that\b)?[:,]?\s+"
    r"|don[’']t\s+forget(?:\s+that\b)?[:,]?\s+(?!to\b)"
    r"|merk(?:e)?\s+dir(?:\s+bitte)?[,:]?\s+(?:dass?\s+)?|denk(?:e)?\s+daran[,:]\s+dass\s+"
    r"|vergiss\s+nicht[,:]\s+dass\s+"
    r"|(?:souviens[- ]toi|rappelle[- ]toi|souvenez[- ]vous|rappelez[- ]vous|retiens|retenez"
    r"|n[’']oublie(?:z)? pas)"
    r"(?:\s*:|\s+(?:que\s+|qu[’']))\s*"
    r"|(?:recuerda|recuerde|acu[ée]rdate(?:\s+de)?|ten\s+en\s+cuenta|no\s+olvides)(?:\s*:"
    r"|\s+que)\s+"
    r"|(?:ricorda(?:ti)?|tieni\s+(?:a\s+mente|presente)|non\s+dimenticare)(?:\s*:|\s+che)\s+"
    r"|(?:lembra?(?:-te)?(?:\s+de)?|lembre(?:-se)?(?:\s+de)?|tenha\s+em\s+mente"
    r"|n[ãa]o\s+(?:te\s+)?esque[çc]as?(?:\s+de)?)"
    r"(?:\s*:|\s+que)\s+"
    r"|(?:запомни(?:те)?|помни(?:те)?|не\s+забудь(?:те)?|не\s+забывай(?:те)?"
    r"|имей(?:те)?\s+в\s+виду)"
    r"(?:\s*:|\s*,\s*что)\s+"
    r"|(?:تذك[ّ]?ر(?:ي)?|لا\s+تنس(?:ى|ي)?|ضع\s+في\s+(?:اعتبارك|بالك))\s*(?::"
    r"|\s(?=أن))\s*(?:أن(?=ي|ني|نا)|أن\s+)?"
    r"|(?:记住|記住|记得|記得|请牢记|別忘了|别忘了)[：:，,]?\s*"
    r"|(?:覚えておいて(?:ください|ね)?|覚えて(?:ください|ね)?|忘れないで(?:ください|ね)?)\s*[：:。、]\s*"
    r"|(?:기억해(?:\s*(?:줘|주세요|두세요|둬))?|잊지\s*마(?:세요)?)\s*[:：,]\s*"
    r")(?P<text>.+)",
    re.IGNORECASE | re.DOTALL,
)
_FORGET = re.compile(
    rf"\s*{_POLITE}(?:forget(?:\s+that\b|\s*:)|(?:you\s+can|please)\s+forget\s+(?:that\b)?"
    r"|vergiss(?:\s+bitte)?\s*,?\s+dass|oublie(?:z)?\s+(?:que\s|qu[’'])"
    r"|olvida(?:te\s+de)?\s+que|dimentica(?:ti)?\s+che|esque[çc]a(?:\s+de)?\s+que"
    r"|забудь(?:те)?\s*,\s*что|انسَ?\s+أن|忘掉|忘记|忘記)\s*[:：,，]?\s*(?P<text>.+)",
    re.IGNORECASE | re.DOTALL,
)
# Japanese and Korean put the verb after the object.
_REMEMBER_BEHIND = re.compile(
    r"\s*(?P<text>[^\s].*?)(?:"
    r"(?:という)?(?:こと|の)?(?:と|を|は)[、,]?\s*(?:覚えておいて|覚えて|忘れないで)(?:ください|くださいね|ね|くれ)?"
    r"|(?:다|라)?(?:는|은|ㄴ)?\s*(?:것을|걸|거를?|점을|사실을|고)\s*(?:꼭\s*)?(?:기억해|잊지\s*마)(?:\s*(?:줘|주세요|두세요|둬"
    r"|세요))?요?"
    r")\s*[。.!！]*\s*",
    re.DOTALL,
)
_CALLED = re.compile(
    rf"\s*{_POLITE}(?:call\s+me|my\s+name\s+is|nenn(?:e)?\s+mich|mein\s+name\s+ist|ich\s+hei(?:ß"
    rf"|ss)e"
    r"|appelle[- ]moi|appelez[- ]moi|je\s+m[’']appelle|mon\s+nom\s+est"
    r"|ll[áa]ma(?:me)|ll[áa]meme|me\s+llamo|mi\s+nombre\s+es|chiamami|mi\s+chiami|mi\s+chiamo"
    r"|il\s+mio\s+nome\s+[èe]"
    r"|(?:me\s+)?chama(?:-me|\s+me)|me\s+chame(?:\s+de)?|chame-me(?:\s+de)?|(?:eu\s+)?me\s+chamo"
    r"|chamo-me|(?:o\s+)?meu\s+nome\s+[ée]"
    r"|(?:называй(?:те)?|зови(?:те)?)\s+меня|меня\s+зовут|мо[её]\s+имя|ناد(?:ني|يني)"
    r"|اسمي(?:\s+هو)?"
    r"|叫我|我的名字是|我叫)\s*(?P<text>.+)",
    re.IGNORECASE | re.DOTALL,
)
# Japanese and Korean put the verb after the name.
_CALLED_BEHIND = re.compile(
    r"\s*(?:"
    r"(?:(?:私|僕|俺|わたし|ぼく)の名前は|名前は)\s*(?P<ja>[^\W\d_][\w・ー]{0,30}?)(?:です|だよ|と(?:いい|言い|申し)ます"
    r"|と呼んで(?:ください|ね)?)"
    r"|(?:(?:私|僕|俺)(?:のこと)?(?:を|は))?\s*(?P<ja2>[^\W\d_][\w・ー]{0,30}?)(?:って|と)呼んで(?:ください|ね)?"
    r"|(?:(?:제|내)\s*이름은)\s*(?P<ko>[^\W\d_]\w{0,20}?)(?:입니다|이에요|예요|이야|야)"
    r"|(?:(?:저를|나를|날)\s*)?(?P<ko2>[^\W\d_]\w{0,20}?)(?:이라고|라고)\s*불러(?:\s*(?:줘|주세요))?요?"
    r")\s*[。.!！]*\s*"
)
# A name has few words, and its sentence contains nothing else about it.
_NAME = re.compile(
    rf"(?:(?:{_TITLES})\.?\s+)?[^\W\d_][\w’'-]*(?: (?-i:[^\W\d_a-zà-ÿа-я])[\w.’'-]*){{0,3}}",
    re.IGNORECASE,
)
_AFTER_A_NAME = re.compile(
    r"\s*(?:[.!。！]*\s*|[,，、،;].*|(?:please|bitte|from now on|ab jetzt|por favor"
    r"|à partir de maintenant"
    r"|d[’']ora in poi|de ahora en adelante|a partir de agora|впредь|пожалуйста)\b.*|(?:and|und"
    r"|et|y|e|и)\b.*)",
    re.IGNORECASE | re.DOTALL,
)
_NO_NAME = re.compile(
    rf"(?:a|an|the|ein|eine|back|when|if|later|by|again|maybe|not|crazy|zurück|nicht|wenn|später"
    rf"|un[ea]?|le|la|les"
    rf"|el|los|las|il|lo|um|uma|quand|cuando|quando|когда|если|потом|今|明天"
    rf"|(?:{_TITLES})\.?$)(?!\w)",
    re.IGNORECASE,
)
# A text of only these words has no meaning outside its chat.
_POINTING = frozenset(
    [
        "that",
        "this",
        "it",
        "these",
        "those",
        "them",
        "so",
        "all",
        "everything",
        "for",
        "me",
        "later",
        "next",
        "time",
        "now",
        "ok",
        "okay",
        "please",
        "always",
        "too",
        "also",
        "again",
        "well",
        "one",
        "ones",
        "thanks",
        "thank",
        "you",
        "in",
        "future",
        "the",
        "das",
        "dies",
        "dieses",
        "es",
        "alles",
        "bitte",
        "immer",
        "auch",
        "für",
        "später",
        "mir",
        "mal",
        "jetzt",
        "ça",
        "cela",
        "ceci",
        "tout",
        "pour",
        "moi",
        "eso",
        "esto",
        "esta",
        "todo",
        "para",
        "mí",
        "después",
        "questo",
        "questa",
        "quello",
        "tutto",
        "per",
        "isso",
        "isto",
        "tudo",
        "mim",
        "depois",
        "это",
        "всё",
        "все",
        "потом",
        "мне",
        "这",
        "那",
        "这个",
        "那个",
        "这些",
        "那些",
        "這",
        "這個",
        "これ",
        "それ",
        "この",
        "その",
        "こと",
        "それら",
        "이것",
        "그것",
        "이거",
        "그거",
        "이걸",
        "그걸",
        "هذا",
        "هذه",
        "ذلك",
    ]
)
# Limited to one task or day, so not a preference.
_PASSING = re.compile(
    r"\b(?:(?:for|in|on|during|about)\s+(?:this|the current|today[’']s)\s+\w+|this\s+(?:time|once"
    r"|week|month|function|file|task|trip|chat"
    r"|conversation|session|email|text|code|class|test|branch|question|one)|today|tonight"
    r"|tomorrow|right now|for now|at the moment"
    r"|in this (?:chat|conversation|session)|until (?:then|tomorrow|friday|monday)"
    r"|heute|morgen|diesmal|f[üu]r diese[nrms]?|in diesem|gerade|aujourd[’']hui|demain|cette fois"
    r"|pour (?:ce|cet|cette)|hoy|ma[ñn]ana"
    r"|esta vez|para est[ea]|oggi|domani|stavolta|per quest[oa]|hoje|amanh[ãa]|desta vez"
    r"|para (?:este|esta|essa|esse)"
    r"|сегодня|завтра|на этот раз|для эт(?:ой|ого))\b"
    r"|今天|明天|这次|這次|今回|今日|明日|이번|오늘|내일|اليوم|غدا|هذه المرة",
    re.IGNORECASE,
)
# The topic of a text decides whether it replaces an older preference.
_SLOTS = (
    ("name", r"\bmy name is\b|\bmein name ist\b|我的名字是"),
    (
        "language",
        r"\b(?:answer|reply|respond|write)(?:s|ing)?\b[^,;]{0,30}\bin (?:[A-Z][a-z]+)\b"
        r"|\bantworte[nt]?\b[^,;]{0,30}\bauf [A-ZÄÖÜ]\w+|\br[ée]pond(?:s|ez"
        r"|re)\b[^,;]{0,30}\ben \w+"
        r"|\b(?:responde|contesta|responda)\b[^,;]{0,30}\bem? \w+"
        r"|\brisponde?[rit]\w*\b[^,;]{0,30}\bin \w+"
        r"|отвечай(?:те)? (?:мне )?(?:на|по)|用\S{1,4}(?:回答|回复|回覆)",
    ),
    (
        "timezone",
        r"\btime ?zone\b|\bzeitzone\b|\bfuseau horaire\b|\bzona horaria\b|\bfuso or[áa]rio\b|时区"
        r"|時區",
    ),
    (
        "place",
        r"\bi live in\b|\bich wohne in\b|\bich lebe in\b|\b(?:j[’']habite|je vis)\b|\bvivo (?:en"
        r"|a|in|em)\b|\bmoro (?:em|no|na)\b"
        r"|\babito a\b|живу в|我住在|に住んで|에 살|أعيش في|أسكن في",
    ),
    (
        "job",
        r"\bi work as\b|\bich arbeite als\b|\bje travaille comme\b|\btrabajo (?:como|de)\b"
        r"|\blavoro come\b|\btrabalho como\b"
        r"|работаю|我的工作是|として働|으로 일|أعمل ك",
    ),
    (
        "diet",
        r"\b(?:vegan|vegetarian|vegetarier(?:in)?|veganer(?:in)?|vegetarisch|v[ée]g[ée]tari(?:en"
        r"|enne)|v[ée]gan(?:e)?|vegetarian[oa]|vegan[oa])\b"
        r"|вегетариан|веган|吃素|素食|ベジタリアン|ヴィーガン|채식|نباتي",
    ),
    ("tone", r"\b(?:be|sei) (?:brief|formal|informal|casual|kurz|förmlich)\b"),
)
_SLOT_PATTERNS = [(slot, re.compile(pattern, re.IGNORECASE)) for slot, pattern in _SLOTS]


class Telling(NamedTuple):
    """One statement of a person about themselves, and its position in their message."""

    slot: str
    text: str
    start: int
    end: int


def extract_statements(text: str) -> list[Telling]:
    """Return the statements in a message, each a literal part of it; usually none."""
    if not text or len(text) > LONGEST_MESSAGE:
        return []
    end = _PARAGRAPH_END.search(text)
    first = text[: end.start()] if end else text
    # Masked with a character that no rule matches, so that positions stay valid.
    seen = _HIDDEN.sub(lambda found: "\0" * len(found.group()), first)
    found = []
    for sentence in _SENTENCE.finditer(seen):
        words = sentence.group()
        if not words.rstrip().endswith(("?", "？")):
            told = _told(words, at=sentence.start(), text=text)
            found += [told] if told else []
        if re.search(r"[:：]\s", words + " ") and not _REMEMBER.match(words):
            # The text after this is material to work on and may be by another author.
            break
    return found


def extract_forget_requests(text: str) -> list[str]:
    """Return the requests to forget in a message, each as a literal part; usually none."""
    if not text or len(text) > LONGEST_MESSAGE:
        return []
    end = _PARAGRAPH_END.search(text)
    seen = _HIDDEN.sub("\0", text[: end.start()] if end else text)
    found = (_FORGET.match(sentence.group()) for sentence in _SENTENCE.finditer(seen))
    texts = (match.group("text").strip().rstrip(".!。！") for match in found if match)
    return [each for each in texts if each and "\0" not in each and not is_mere_reference(each)]


def is_quotable_span(told: Telling, *, text: str) -> bool:
    """Return True if a text is at its position, outside code, quotations and pastes."""
    if len(text) > LONGEST_MESSAGE or text[told.start : told.end] != told.text:
        return False
    return not any(
        hidden.start() < told.end and told.start < hidden.end() for hidden in _HIDDEN.finditer(text)
    )


def mask_quotations(text: str) -> str:
    """Return a text with code and quotations masked."""
    return _HIDDEN.sub("[…]", text)


def detect_slot(text: str) -> str:
    """Return the slot that a preference belongs to, by its first words; `note` by default."""
    return next((slot for slot, pattern in _SLOT_PATTERNS if pattern.search(text)), "note")


def _told(words: str, *, at: int, text: str) -> Telling | None:
    behind = _CALLED_BEHIND.fullmatch(words)
    if behind:
        group = behind.lastgroup or ""
        return _literal("name", behind.start(group), behind.end(group), words, at=at, text=text)
    called = _CALLED.match(words)
    if called:
        name = _NAME.match(words, called.start("text"))
        if name is None or _NO_NAME.match(name.group()):
            return None
        if not _AFTER_A_NAME.fullmatch(words, name.end()):
            return None
        return _literal("name", name.start(), name.end(), words, at=at, text=text)
    noted = _REMEMBER.match(words) or _REMEMBER_BEHIND.fullmatch(words)
    if noted is None:
        return None
    said = noted.group("text")
    if is_mere_reference(said) or _PASSING.search(said):
        return None
    return _literal(
        detect_slot(said), noted.start("text"), noted.end("text"), words, at=at, text=text
    )


def is_mere_reference(text: str) -> bool:
    """Return True if a text only refers to other text, such as "that" or "this for later"."""
    return all(word in _POINTING for word in re.findall(r"\w+", text.lower()))


def _literal(slot: str, start: int, end: int, words: str, *, at: int, text: str) -> Telling | None:
    """Return a statement without surrounding white space and full stop. None if it is empty."""
    said = words[start:end]
    start += len(said) - len(said.lstrip())
    said = said.strip().rstrip(".!。！、,").rstrip()
    told = Telling(
        slot, text[at + start : at + start + len(said)], at + start, at + start + len(said)
    )
    fits = SHORTEST_TEXT <= len(said) <= LONGEST_TEXT
    return told if fits and names.is_allowed_name(said) and not is_secret(said) else None
