"""Finds preferences that a person states in a message, using fixed patterns.

A statement counts only at the beginning of a sentence of the first paragraph, before any colon, and
outside code and quotations. Messages that may be pastes are skipped. Documents, quotations and
other speakers do not count as the person's statements. Each result is a verbatim part of the
message.
"""

import re
from typing import NamedTuple

from chats.memory.preferences.preference_slots import split_by_slot
from chats.memory.preferences.sensitive import is_secret
from chats.memory.preferences.stated_names import (
    DAYS,
    POLITE,
    TITLES,
    find_stated_name,
)
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
# A full stop inside a word, after a title, an initial or an ordinal number does not end a sentence.
_BEHIND_A_TITLE = "|".join(
    rf"(?<=\b{title})"
    for form in TITLES.split("|")
    for title in (form.replace("?", ""), re.sub(r".\?", "", form))
)
_REST_OF_DATE = (
    r"(?-i:[a-zß-ÿа-я]|\d{1,2}\.|\d{4}\b"
    r"|Jan|Jän|Feb|März|Apr|Mai|Jun|Jul|Aug|Sep|Okt|Nov|Dez)"
)
_SENTENCE = re.compile(
    rf"(?:[^.!?。！？؟\n]|\.(?=\w)|(?:{_BEHIND_A_TITLE}|(?-i:(?<=\b[A-Z])))\.(?= )"
    rf"|(?:(?<=\b\d)|(?<=\b\d\d))\.(?= {_REST_OF_DATE}))+[.!?。！？؟]*",
    re.IGNORECASE,
)
_BESIDE_THE_VERB = (
    r"(?:\s*[,，،]?\s*(?:please|bitte|immer|gut|auch|bien|toujours|aussi"
    r"|s[’']il (?:te|vous) pla[iî]t"
    r"|siempre|también|por favor|sempre|bene|anche|per favore|também|bem|пожалуйста|всегда"
    r"|دائما|دائماً|جيدا|جيداً|من فضلك)\b)*"
)
# "the milk" is an errand, but "the replies should be short" and "you must …" are rules.
_NO_RULE = (
    r"(?:the|your?)\b(?! (?:\w+ ){0,3}(?:should|must|can|may|need|never|always|do not|don[’']t)\b)"
)
# For each language: the verbs that ask to remember, and the words between verb and statement.
_ASKING = (
    (
        r"(?:always\s+|also\s+)?remember",
        r"(?:(?:\s*[:,]\s*|\s+)that\b|\s*[:,])?\s+(?!(?:when|how|what|who|why|where|if|to|me|our"
        rf"|us|last|yesterday)\b|{_NO_RULE})",
    ),
    (
        r"(?:always\s+)?(?:keep|bear)\s+in\s+mind|(?:don[’']t|do\s+not|never)\s+(?:ever\s+)?forget",
        r"(?:\s+that\b)?[:,]?\s+(?!(?:to|about|when|how|what|who|why|where|if|me|our|us)\b"
        rf"|{_NO_RULE})",
    ),
    (r"(?:make|take)\s+(?:a\s+)?note|memori[sz]e", r"(?:\s+that\b|\s*:)\s+"),
    (
        r"merk(?:e|en\s+sie)?\s+(?:dir|sich|euch)|(?:be)?halte?\s+im\s+(?:kopf|hinterkopf)"
        r"|notiere?\s+dir|denk(?:e|en\s+sie)?\s+(?:daran|dran)|vergiss\s+(?:nicht|nie)"
        r"|vergessen\s+sie\s+(?:nicht|nie)",
        r"(?:\s*[,:]\s*dass?\s+|\s*:\s*|\s+dass\s+|\s*,\s*(?=ich\b|mein))",
    ),
    (
        r"souviens[- ]toi|rappelle[- ]toi|souvenez[- ]vous|rappelez[- ]vous|retiens|retenez"
        r"|n[’']oublie(?:z)? (?:pas|jamais)|mémorise(?:z)?|pren(?:ds|ez)\s+(?:bonne\s+)?note"
        r"|garde(?:z)?(?:\s+bien)?\s+(?:en\s+(?:tête|mémoire)|à\s+l[’']esprit)",
        r"(?:\s*:|\s+(?:que\s+|qu[’']))\s*",
    ),
    (
        r"recuerd[ae]|acu[ée]rd(?:ate|ese)|ten(?:ga)?\s+(?:en\s+cuenta|presente)"
        r"|(?:no|nunca)\s+(?:(?:te|se)\s+)?olvides?|memori[zc]e?a?|an[óo]ta(?:te)?|apunta(?:te)?",
        r"(?:\s+de)?(?:\s*:|\s+que)\s+",
    ),
    (
        r"ricorda(?:ti)?|si\s+ricordi|tieni\s+(?:a\s+mente|presente|conto(?:\s+del\s+fatto)?)"
        r"|non\s+(?:ti\s+)?dimentica(?:re|rti)|memorizza|annota|prendi\s+nota|segnati",
        r"(?:\s*:|\s+che)\s+",
    ),
    (
        r"lembr[ae]?(?:-[st]e)?|te(?:m|nha)\s+(?:em\s+(?:mente|conta)|presente)"
        r"|(?:n[ãa]o|nunca)\s+(?:[st]e\s+)?esque[çc]as?(?:-[st]e)?|memori[zc]e?a?|guard[ae]"
        r"|anot[ae]",
        r"(?:\s+de)?(?:\s*:|\s+que)\s+",
    ),
    (
        r"запомни(?:те)?|помни(?:те)?|не\s+забудь(?:те)?|не\s+забывай(?:те)?|имей(?:те)?\s+в\s+виду"
        r"|учти(?:те)?|учитывай(?:те)?|запиши(?:те)?",
        r"(?:\s*:|\s*,\s*что)\s+",
    ),
    (
        r"تذك[ّ]?ر(?:ي)?|لا\s+تنس(?:ى|ي)?|ضع\s+في\s+(?:اعتبارك|بالك)|احفظ(?:ي)?|سجل(?:ي)?"
        r"|خذ\s+(?:بعين\s+الاعتبار|في\s+(?:الاعتبار|الحسبان))",
        r"\s*(?::\s*|\s(?=ب?أن))(?:ب?أن\s+|ب(?=أن))?",
    ),
    (
        r"(?:[你您]\s*)?(?:要|[帮幫替]我)?(?:永远|一定)?(?:要)?(?:(?:记住|記住|牢记|牢記)(?:一下)?"
        r"|[记記]一下|[记記]下来?)",
        # 了, 没有 or 吗 behind the verb: "I have remembered", "have you?"
        r"(?:[：:，,]\s*|(?!\s*[：:了没沒吗嗎])\s*)",
    ),
    # These verbs mostly remind of an errand, if the person is not the subject.
    (
        r"(?:[你您]\s*)?(?:要)?(?:永远|一定)?(?:要)?(?:记得|記得|[别別]忘(?:了|[记記])|不要忘(?:了|[记記]))",
        r"[：:，,]?\s*(?=我(?!要你|们|們)|本人|咱)",
    ),
    (
        r"(?:覚えておいて|覚えといて|覚えて|忘れないで|記憶して(?:おいて)?)(?:ください(?:ね)?|ね|くれ)?",
        r"\s*[：:。、]\s*",
    ),
    (r"(?:기억해|잊지\s*마)(?:\s*(?:줘|주세요|두세요|둬|세요))?요?", r"\s*[:：,]\s*"),
)
_REMEMBER = re.compile(
    rf"\s*{POLITE}(?:"
    + "|".join(rf"(?:{verb}){_BESIDE_THE_VERB}{joint}" for verb, joint in _ASKING)
    + r")(?P<text>.+)",
    re.IGNORECASE | re.DOTALL,
)
_FORGET = re.compile(
    rf"\s*{POLITE}(?:(?:(?:you\s+can|now)\s+)?forget(?:\s+about)?"
    r"(?:\s+(?:that|the\s+fact\s+that)\b|\s*:|\s+(?=my\b|i\b|i[’']))"
    r"|(?:please|you\s+can)\s+forget\b|(?:do\s+not|don[’']t|no\s+longer)\s+remember\s+that\b"
    r"|(?:vergiss|vergessen\s+sie)(?:\s+bitte)?(?:\s*,\s*|\s+)(?:dass|mein\w*)\b"
    r"|oublie(?:z)?\s+(?:que\s|qu[’']|m(?:on|a|es)\s)"
    r"|olv[ií]d[ae](?:te|se)?(?:\s+de)?\s+(?:que|mis?)\b|dimentica(?:ti)?(?:\s+(?:di|del\s+fatto))?"
    r"\s+(?:che|(?:il|la|i|le)\s+mi[oaei]\w*)\b"
    r"|esque[çc](?:a|e)(?:-[st]e)?(?:\s+de)?\s+(?:que|[oa]s?\s+(?:meu|minha)s?)\b"
    r"|забудь(?:те)?(?:,?\s+пожалуйста)?(?:\s*,\s*что|\s+мо\w+)"
    r"|انسَ?[يى]?(?:\s+أن(?!\w)|\s+(?=أن))|(?:把)?忘(?:掉|记|記|了)(?:吧)?)"
    r"\s*[:：,，]?\s*(?P<text>.+)",
    re.IGNORECASE | re.DOTALL,
)
_FORGET_BEHIND = re.compile(
    r"\s*(?:(?P<ja>[^\s:：][^:：]*?)(?:という)?(?:こと|の|点|事)?(?:を|は)[、,]?\s*(?:もう)?"
    r"忘れて(?:ください|くれ|ね|いい(?:です)?(?:よ)?)?"
    r"|(?P<ko>[^\s:：][^:：]*?(?:다(?=는)|(?=이?라는)|인(?=\s*[것거걸점])|[있없]는))(?:는|이?라는)?"
    r"\s*(?:것[을은]?|건|걸|거[를는]?|점[을은]?|사실[을은]?)\s*(?:이제\s*)?잊어(?:\s*(?:줘|주세요|버려"
    r"|버리세요|도\s*돼))?요?"
    r"|(?P<zh>[^\s:：][^:：]*?)(?:这件事|這件事|这一点|這一點)?(?:忘掉|忘了|忘记|忘記)(?:吧|掉)?)"
    r"\s*[。.!！]*\s*",
    re.DOTALL,
)
# Japanese and Korean put the verb after the object.
_REMEMBER_BEHIND = re.compile(
    r"\s*(?:"
    r"(?P<ja>[^\s:：][^:：]*?)(?:(?:という)?(?:こと|の|点|事)?[とをは]|(?:ので|から))[、,]?\s*"
    r"(?:必ず|ちゃんと|よく|ずっと)?"
    r"(?:覚えておいて|覚えといて|覚えて|記憶して(?:おいて)?|心に留めて(?:おいて)?)"
    r"(?:ください(?:ね)?|ね|くれ|ほしい(?:です)?|欲しい(?:です)?)?"
    # After “do not forget”, a state is a fact; another verb is an errand.
    r"|(?P<ja2>(?=[^\s:：])(?:[^:：]*?(?:ある|いる|ない|[だなた]|できる)"
    r"|[^:：]*?(?:いつも|常に|必ず|毎[日回週])[^:：]*?))(?:という)?(?:こと|の|点|事)(?:を|は)"
    r"[、,]?\s*(?:絶対に?|決して)?忘れないで(?:ください(?:ね)?|ね|くれ|ほしい(?:です)?)?"
    r"|(?P<ko>[^\s:：][^:：]*?(?:다(?=[는고])|(?=이?라[는고])|인(?=\s*[것거걸점])|[있없](?:는|음)"
    r"|니까(?=\s)))(?:[는고]|이?라[는고]|을)?\s*(?:것을?|걸|거를?|점을?|사실을?)?\s*(?:꼭\s*)?"
    r"(?:기억해|잊지\s*마)(?:\s*(?:줘|주세요|두세요|둬|세요))?요?"
    r")\s*[。.!！]*\s*",
    re.DOTALL,
)
# A text of only these words has no meaning outside its chat.
_POINTING = frozenset(
    re.findall(
        r"\S+",
        "that this it these those them so all everything for me later next time now ok okay "
        "please always too also again well one ones thanks thank you in future the das dies "
        "dieses es alles bitte immer auch für später mir mal jetzt ça cela ceci tout pour moi "
        "eso esto esta todo para mí después questo questa quello tutto per isso isto tudo mim "
        "depois это всё все потом мне 这 那 这个 那个 这些 那些 這 這個 これ それ この その "
        "こと それら 이것 그것 이거 그거 이걸 그걸 هذا هذه ذلك",
    )
)
# Limited to one task or day, so not a preference: a text points at something in the chat, or at one
# day or week ("this function", "diese Woche").
_PASSING = re.compile(
    # A demonstrative. English "that" and French "ce que" also begin clauses.
    r"\b(?:this|these|dies(?:e[mnrs]?)?|cet(?:te)?|ces|ce(?! que\b| qui\b| n[’'e])"
    r"|[nd]?est[ae]s?|esos?|[nd]ess[ae]s?|essas?|(?:^|(?<=para )|(?<=com ))esse|[nd]?aquel[ae]s?"
    r"|isto|isso|quest[aeio]|quell[aeio]|quel|quegli"
    r"|эт(?:от|а|о|и|ой|ом|ого|их|им|ими|ому|у))\b"
    r"|[这這]|那[个個次些篇]|[こそ]の(?!ため|他|ほか|うち)|[こそ]れ(?!から|ぞれ)|今回"
    r"|(?<!\w)[이그] (?=\w)|이번|(?<!\w)[وفبل]?هذ[اه]|(?<!\w)(?:ذلك|تلك)(?!\w)"
    # A day or a time that passes.
    r"|\b(?:today|tonight|yesterday|tomorrow|right now|for now|at the moment"
    r"|(?:for|in|on|during|about)\s+(?:the current|today[’']s)\s+\w+"
    r"|until (?:then|next|the)|(?:next|last) (?:week|month|time|night|year)"
    rf"|(?:on|by|until|next|last|am|bis|ce|le prochain|el|il|на|в|во|до)\s+(?:{DAYS})"
    rf"|(?:{DAYS})\s+(?:prochain|dernier|que viene|prossimo|que vem)"
    r"|heute|gestern|(?<!jeden )(?<!am )morgen|[üu]bermorgen|diesmal|gerade"
    r"|n[äa]chste[nrs]? (?:woche|monat)"
    r"|aujourd[’']hui|hier|demain|en ce moment|la semaine prochaine"
    r"|hoy|ayer|(?<!la )ma[ñn]ana|por ahora|la pr[óo]xima semana"
    r"|oggi|ieri|domani|per ora|la prossima settimana"
    r"|hoje|ontem|amanh[ãa]|por enquanto|na pr[óo]xima semana"
    r"|сегодня|вчера|завтра|пока что|на следующей неделе)\b"
    r"|今天|昨天|明天|今晚|本[周週]|下[周週]|上[周週]|[今昨明]日|今[週朝夜]|来週|先週"
    r"|오늘|어제|내일|다음 ?주|지난 ?주|(?<!\w)(?:اليوم|أمس|غدا|غداً|الأسبوع القادم)(?!\w)"
    # A place in the chat or in a file, or words of the model.
    r"|\b(?:the )?(?:above|following|aforementioned)\b|\byou (?:said|asked|wrote|promised)\b"
    r"|上面|以上|上述|下面|刚才|剛才|前面|以下の|上記|위의|아래의"
    r"|^我(?:们|們)?[^，,。]{0,4}[说說讲講问問提](?:[过過好]|到的|的(?!是))"
    r"|^我的(?:要求|需求|[话話]|[问問][题題]|名字|意思|偏好|喜好|[习習][惯慣])[吧啊哦]?$"
    r"|\b\w+\.(?:py|js|ts|java|cpp?|rs|go|rb|php|html?|css|json|ya?ml|md|txt|csv|pdf|docx?|xlsx?)\b"
    r"|^(?:for|in|on|during|at) the\b|^(?:thing|one|old|stuff|part|(?:time|day) (?:i|we|you))\b"
    r"|^the (?:\w+ )?(?:function|variable|file|class|method|test|branch|table|column|script|module"
    r"|bug|error|deadline|meeting|attachments?)\b",
    re.IGNORECASE,
)


class Telling(NamedTuple):
    """A person's statement about themselves, and its position in their message."""

    slot: str
    text: str
    start: int
    end: int


def extract_statements(text: str) -> list[Telling]:
    """Return the statements in a message, verbatim; usually none."""
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
            found += _extract_facts(words, at=sentence.start(), text=text)
        if re.search(r"[:：]\s", words + " ") and not _REMEMBER.match(words):
            # The text after this is material to work on and may be by another author.
            break
    return found


def extract_forget_requests(text: str) -> list[str]:
    """Return the statements that a message asks to forget, verbatim; usually none."""
    if not text or len(text) > LONGEST_MESSAGE:
        return []
    end = _PARAGRAPH_END.search(text)
    seen = _HIDDEN.sub("\0", text[: end.start()] if end else text)
    texts = []
    for sentence in _SENTENCE.finditer(seen):
        words = sentence.group()
        match = _FORGET.match(words) or _FORGET_BEHIND.fullmatch(words)
        if match and not words.rstrip().endswith(("?", "？")):
            texts.append(match.group(match.lastgroup or "").strip().rstrip(".!。！"))
    return [each for each in texts if each and "\0" not in each and not is_mere_reference(each)]


def is_quotable_span(statement: Telling, *, text: str) -> bool:
    """Return True if the text is verbatim at its position, outside code, quotations and pastes."""
    if len(text) > LONGEST_MESSAGE or text[statement.start : statement.end] != statement.text:
        return False
    return not any(
        hidden.start() < statement.end and statement.start < hidden.end()
        for hidden in _HIDDEN.finditer(text)
    )


def mask_quotations(text: str) -> str:
    """Return text with code and quotations masked."""
    return _HIDDEN.sub("[…]", text)


def _extract_facts(words: str, *, at: int, text: str) -> list[Telling]:
    name = find_stated_name(words)
    if name:
        statement = _build_statement("name", *name, words, at=at, text=text)
        return [statement] if statement else []
    noted = _REMEMBER.match(words) or _REMEMBER_BEHIND.fullmatch(words)
    if noted is None:
        return []
    # The text is the last group in which something was found.
    group = noted.lastgroup or ""
    said = noted.group(group)
    if is_mere_reference(said) or _PASSING.search(said):
        return []
    begin = noted.start(group)
    facts = [
        _build_statement(slot, begin + start, begin + end, words, at=at, text=text)
        for slot, start, end in split_by_slot(said)
    ]
    return [fact for fact in facts if fact is not None]


def is_mere_reference(text: str) -> bool:
    """Return True if the text only refers to other text, such as "that" or "this for later"."""
    return all(word in _POINTING for word in re.findall(r"\w+", text.lower()))


def _build_statement(
    slot: str, start: int, end: int, words: str, *, at: int, text: str
) -> Telling | None:
    """Return a statement without surrounding white space and full stop. None if it is empty."""
    said = words[start:end]
    start += len(said) - len(said.lstrip())
    said = said.strip().rstrip(".!。！、,").rstrip()
    statement = Telling(
        slot, text[at + start : at + start + len(said)], at + start, at + start + len(said)
    )
    fits = SHORTEST_TEXT <= len(said) <= LONGEST_TEXT
    return statement if fits and names.is_allowed_name(said) and not is_secret(said) else None
