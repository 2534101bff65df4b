"""Judges whether a summary says anything about its sources, bullet by bullet.

A bullet without content is a placeholder ("none"), a refusal, a copy of the instructions, or a
repetition. The others count if they share a word, a number or a name with the sources.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from contextpolicy.engine.text.claims import strip_bullet_label, strip_source_marks
from contextpolicy.engine.text.language import COMMON_WORDS

ContentFault = Literal["", "no_content", "refusal", "echo"]
# In characters, without punctuation: a shorter bullet may occur in the instructions by chance.
SHORTEST_ECHO = 12
# A summary with this many repetitions is a loop if they outnumber its other bullets.
MOST_REPEATED = 5
# In characters: words with a common beginning of this length count as forms of one word.
_STEM = 5


def find_content_fault(
    summary_text: str, *, sources_text: str, instructions: Sequence[str], example: str
) -> ContentFault:
    """Return why a summary says nothing about its sources, or "" if it does.

    `instructions`: the texts that asked for the summary. `example`: the bullet they give as an
    example. It is a fact if the sources have its words.
    """
    bullets = list(_list_bullets(summary_text))
    distinct = list(dict.fromkeys(_flatten(bullet) for bullet in bullets))
    repeated = len(bullets) - len(distinct)
    if repeated >= MOST_REPEATED and repeated > len(distinct):
        return "echo"
    told = frozenset(extract_telling_words(sources_text))
    asked = [_flatten(text) for text in instructions]
    if told and set(extract_telling_words(example)) <= told:
        asked = [text.replace(_flatten(example), "") for text in asked]
    faults: set[ContentFault] = set()
    for bullet in bullets:
        fault = _classify_bullet(bullet, asked)
        if not fault and (not told or not told.isdisjoint(extract_telling_words(bullet))):
            return ""
        faults.add(fault or "no_content")
    if "refusal" in faults:
        return "refusal"
    return "echo" if "echo" in faults else "no_content"


def extract_telling_words(text: str) -> Iterator[str]:
    """Yield the beginnings of the words of a text that show its topic, and its numbers.

    Scripts without capitals and spaces yield pairs of characters.
    """
    for word in _WORD.findall(text):
        folded = word.casefold()
        if folded not in COMMON_WORDS:
            yield folded.removesuffix("s")[:_STEM]
    for run in _PAIRED.findall(text):
        yield from (run[place : place + 2] for place in range(len(run) - 1))


def is_refusal_text(text: str) -> bool:
    """Return True if a text declines the task, in one of many languages."""
    return bool(_DECLINES.match(text) and _TASK.search(text))


def _list_bullets(summary_text: str) -> Iterator[str]:
    """Yield the lines of a summary that are not headings, without bullet, label and sources."""
    for line in summary_text.splitlines():
        plain = _OPENING.sub("", line).strip()
        if plain and not _HEADING.match(line):
            yield strip_source_marks(strip_bullet_label(plain)).strip()


def _classify_bullet(bullet: str, asked: Iterable[str]) -> ContentFault:
    flat = _flatten(bullet)
    if not flat or flat in _PLACEHOLDERS or _NOTHING.fullmatch(flat):
        return "no_content"
    if is_refusal_text(bullet):
        return "refusal"
    is_copy = len(flat) >= SHORTEST_ECHO and any(flat in text for text in asked)
    return "echo" if is_copy else ""


def _flatten(text: str) -> str:
    """Return a text in lower case, without punctuation and with single spaces."""
    return " ".join(_SIGNS.sub(" ", text.casefold().replace("/", "").replace(".", "")).split())


_OPENING = re.compile(r"^\s*(?:>\s*)*(?:(?:[-*•+–—]|\d{1,3}[.)])\s+)*(?:\[[ xX]\]\s+)?")
_HEADING = re.compile(r"\s*#{1,6}\s")
_SIGNS = re.compile(r"[^\w\u0300-\u036f\u0900-\u0dff\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]+|_+")
# Han, kana, Hangul, the scripts of India and South-East Asia: their vowel signs are not letters.
_PAIRS = (
    "\u0900-\u0dff\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
    "\uf900-\ufaff\U00020000-\U0003ffff"
)
_PAIRED = re.compile(f"[{_PAIRS}]{{2,}}")
_WORD = re.compile(rf"\d+|(?:(?![{_PAIRS}])[^\W\d_]){{3,}}")
_PLACEHOLDERS = frozenset(
    _flatten(text)
    for text in """\
none|n/a|nil|null|nothing|empty|unknown|tbd|todo|not applicable|not available|no|placeholder
keine|keiner|keines|kein|nichts|keine angaben|keine angabe|nicht vorhanden|entfällt|leer
aucun|aucune|rien|néant|sans objet|ninguno|ninguna|nada|no hay|no aplica|sin datos|vacío
nessuno|nessuna|niente|nulla|nenhum|nenhuma|não há|vazio|geen|niets|n.v.t.|niet van toepassing
нет|ничего|отсутствует|отсутствуют|пусто|немає|нема|нічого|brak|nic|žádné|žádný|yok|hiçbiri
inga|inget|ingen|ingenting|ei mitään|nincs|niciunul|niciuna|tidak ada|không|không có
无|無|没有|沒有|暂无|暫無|空|无内容|無內容|なし|無し|特になし
ありません|該当なし|없음|없습니다|해당 없음
لا يوجد|لا شيء|کوئی نہیں|कोई नहीं|कुछ नहीं|नहीं|ไม่มี|אין""".replace("\n", "|").split("|")
)
# "No preferences were mentioned", "None so far".
_NOTHING = re.compile(
    r"(?:no|none|nothing|not)(?: \w+){0,8}? (?:mentioned|recorded|specified|stated|given|provided"
    r"|identified|found|discussed|available|noted|yet|so far|information|details?|items?|facts?"
    r"|preferences?|decisions?)(?: (?:yet|so far|here|in (?:this|the) \w+))?"
)
# The beginning of an apology or of a statement about the limits of the writer.
_DECLINES = re.compile(
    r"[\W_]*(?:(?:i['’]?m|i am)(?: \w+)? (?:sorry|unable|not able)|sorry\b|apologies|my apologies"
    r"|i apologi[sz]e|i (?:can(?: ?no|['’])t|won['’]t|will not|do not|don['’]t|am unable)"
    r"|as an ai\b|unfortunately|(?:es )?tut mir (?:sehr )?leid|entschuldig|leider|ich kann"
    r"|ich bin nicht|(?:je suis )?(?:vraiment )?désolée?|je ne (?:peux|suis)|je m['’]excuse"
    r"|malheureusement|lo siento|lo lamento|lamento|no puedo|disculp|me disculpo|desafortunadamente"
    r"|mi dispiace|mi scuso|non posso|purtroppo|desculp|sinto muito|não posso|infelizmente"
    r"|het spijt me|helaas|ik kan|извин|прост[ие]|прошу прощения|к сожалению|я не могу|вибач"
    r"|на жаль|я не можу|przepraszam|niestety|nie mogę|üzgünüm|özür|maalesef|عذر|آسف|أعتذر|لا يمكن"
    r"|لا أستطيع|क्षमा|माफ़|माफ|मुझे खेद|抱歉|很抱歉|非常抱歉|对不起|對不起"
    r"|很遗憾|很遺憾|我无法|我無法|我不能|我没办法|申し訳|すみません|ごめん|恐れ入り|恐縮"
    r"|残念ながら|죄송|미안|안타깝|유감|ขออภัย|ขอโทษ|xin lỗi|rất tiếc|maaf)",
    re.IGNORECASE,
)
# The declined task: to summarise, to help, to follow the request.
_TASK = re.compile(
    r"summar|conversation|\bchat\b|request|\bhelp|assist|compl(?:y|ete)|transcript|zusammenfass|helfen"
    r"|gespräch|unterhaltung|anfrage|résum|\baider|demande|resum|ayud|conversaci|solicitud|petici"
    r"|riassu|aiut|conversazione|richiest|ajud|conversa|solicita|pedido|samenvat|gesprek|verzoek"
    r"|помо[гчщ]|резюм|обобщ|разговор|бесед|диалог|запрос|пересказ|допомо|підсум|розмов|podsumow"
    r"|streści|pomóc|rozmow|özet|yardım|sohbet|konuşma|تلخيص|مساعد|محادث|طلب|सारांश|मदद|सहायता|बातचीत"
    r"|总结|總結|概括|摘要|帮助|幫助|协助|協助|请求|請求|对话|對話|要約|手伝|お答え|対応|会話|요약|도와|도움|대화"
    r"|สรุป|ช่วย|สนทนา|tóm tắt|giúp|trò chuyện|ringkas|membantu|percakapan",
    re.IGNORECASE,
)
