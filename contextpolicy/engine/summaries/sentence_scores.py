"""Splits a message into sentences, with the section and the facts of each."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from contextpolicy.engine.summaries.sentence_splitting import CODE_BLOCK, split_sentences
from contextpolicy.engine.text.claims import strip_source_marks
from contextpolicy.engine.text.fact_scanner import Kind
from contextpolicy.engine.text.facts import extract_facts
from contextpolicy.engine.text.sentence_ends import ENDS

# The minimum length of a statement in bytes of UTF-8, so that a Chinese sentence of six characters
# is long enough.
SHORTEST_STATEMENT = 16
# In words: an exclamation of up to this length has no content ("Create those memories!").
LONGEST_CRY = 4
# The weight of one fact by kind. A single digit is usually a list number.
WEIGHTS: Mapping[Kind, float] = {
    "url": 1.5,
    "date": 1.5,
    "identifier": 1.0,
    "number": 1.0,
    "name": 0.8,
}
PRICE, QUOTED, DIGIT = 1.5, 0.8, 0.25
# A question weighs less than a statement with the same facts; a request is worth remembering.
QUESTION, REQUEST = -0.1, 0.4
# In characters: words with a common beginning of this length count as forms of one word.
STEM = 6
# In characters: a longer line of code is not quoted.
LONGEST_CODE = 120


@dataclass(frozen=True, slots=True)
class ScoredSentence:
    """A sentence with its section, base weight and facts with their weights.

    `names` maps candidate names to True if the sentence begins with them; a comparison with
    the whole chat shows which of them are names. `addressed` maps words set off by commas,
    as in "Sam, how are you?", to True if the sentence addresses that person. `words` are
    the beginnings of the longer words; `small` are the lower-case words. `clauses` are the
    clauses in scripts without capitals. `is_asked`: the sentence is an answered question
    and not a request.
    """

    text: str
    section: str
    weight: float
    facts: Mapping[str, float]
    names: Mapping[str, bool]
    words: frozenset[str]
    small: frozenset[str]
    clauses: frozenset[str] = frozenset()
    addressed: Mapping[str, bool] = field(default_factory=dict)
    is_asked: bool = False


def score_sentences(
    text: str, *, by_person: bool, is_answered: bool = False
) -> Iterator[ScoredSentence]:
    """Yield the sentences of a text in order, without fragments."""
    for sentence in split_sentences(text):
        if not is_fragment(sentence, by_person=by_person):
            yield score_sentence(sentence, by_person=by_person, is_answered=is_answered)


def score_sentence(sentence: str, *, by_person: bool, is_answered: bool = False) -> ScoredSentence:
    """Classify and weight one sentence. With `is_answered`, a question is not an open item."""
    plain = strip_source_marks(sentence)
    found = extract_facts(plain)
    facts = _weigh_facts(found)
    facts |= {match[0].strip().casefold(): PRICE for match in _PRICE.finditer(plain)}
    facts |= {(match[1] or match[2]).casefold(): QUOTED for match in _QUOTED.finditer(plain)}
    names = {
        _POSSESSIVE.sub("", word): plain.startswith(name) and not place
        for name in found["name"]
        for place, word in enumerate(name.split(" "))
    }
    section, weight = classify_sentence(plain, by_person=by_person, is_answered=is_answered)
    return ScoredSentence(
        text=sentence,
        section=section,
        weight=weight,
        facts=facts,
        names=names,
        words=frozenset(extract_word_stems(plain)),
        small=frozenset(_SMALL.findall(plain)),
        clauses=frozenset(_CLAUSE.findall(_WIDE_ADDRESS.sub(_keep_before, plain))),
        addressed=find_addressed_names(plain),
        is_asked=is_question_sentence(plain) and (section, weight) == ("Facts", QUESTION),
    )


def find_addressed_names(plain: str) -> dict[str, bool]:
    """Map each word set off by commas to True if the sentence addresses a person.

    A sentence addresses a person if it is a question, says "you", or begins with the name
    or a greeting. Otherwise the word may be a place ("Austin, Texas"). A word that occurs a
    second time is omitted.
    """
    is_speaking = is_question_sentence(plain) or bool(_YOU.search(plain))
    return {
        match[1].casefold(): is_speaking or not match.start()
        for match in _ADDRESS.finditer(plain)
        if plain.count(match[1]) == 1
    }


def _keep_before(address: re.Match[str]) -> str:
    return address["before"] or ""


def extract_code_terms(text: str) -> Iterator[str]:
    """Yield the identifiers and quoted words in the code of a text."""
    for block in CODE_BLOCK.finditer(text):
        yield from (fact.casefold() for fact in extract_facts(block[0])["identifier"])
        yield from ((match[1] or match[2]).casefold() for match in _QUOTED.finditer(block[0]))


def extract_code_lines(text: str) -> Iterator[ScoredSentence]:
    """Yield the lines of code in a text that contain an identifier, uncut."""
    for block in CODE_BLOCK.finditer(text):
        for line in block[0].splitlines()[1:]:
            code = " ".join(line.split())
            if len(code) > LONGEST_CODE or "`" in code:
                continue
            facts = _weigh_facts(extract_facts(code))
            facts |= {match[2].casefold(): QUOTED for match in _LITERAL.finditer(code)}
            if facts:
                yield ScoredSentence(f"`{code}`", "Facts", 0.0, facts, {}, frozenset(), frozenset())


def _weigh_facts(found: Mapping[Kind, Iterable[str]]) -> dict[str, float]:
    """Return the weights of the facts found, without names."""
    return {
        fact.casefold(): get_fact_weight(kind, fact)
        for kind, listed in found.items()
        if kind != "name"
        for fact in listed
    }


def get_fact_weight(kind: Kind, fact: str) -> float:
    return DIGIT if kind == "number" and len(fact) == 1 else WEIGHTS[kind]


def extract_word_stems(text: str) -> Iterator[str]:
    """Yield the first six letters of each longer word of a text.

    Chinese is split into pairs of characters.
    """
    for word in _WORD.findall(text):
        yield word.casefold()[:STEM]
    for run in _IDEOGRAPHS.findall(text):
        yield from (run[place : place + 2] for place in range(len(run) - 1))


def classify_sentence(
    plain: str, *, by_person: bool, is_answered: bool = False
) -> tuple[str, float]:
    """Return the section of a sentence, and its weight without facts."""
    is_decided = bool((_DECIDED if by_person else _AGREED).search(plain))
    is_rule = by_person and bool(_FORBIDDEN.search(plain) or _PREFERRED.search(plain))
    is_asked = is_question_sentence(plain)
    if by_person and (is_to_do(plain) or (is_asked and not is_answered)):
        return "Open items", 0.6 if is_rule else 0.2
    if is_asked:
        return "Facts", REQUEST if by_person and _REQUEST.search(plain) else QUESTION
    if is_decided:
        return "Decisions", 0.8 if by_person else 0.4
    if is_rule:
        return "Preferences", 0.6
    if _DONE.search(plain):
        return "Done items", 0.2 if by_person else 0.1
    return "Facts", 0.1 if by_person else 0.0


def is_question_sentence(sentence: str) -> bool:
    """Return True if a sentence ends with a question mark."""
    return bool(_QUESTION.search(sentence))


def is_to_do(sentence: str) -> bool:
    """Return True if a sentence states an open task."""
    return bool(
        _TO_DO.search(sentence) or (not is_question_sentence(sentence) and _NEEDED.match(sentence))
    )


def is_fragment(text: str, *, by_person: bool) -> bool:
    """Return True for a line that has little meaning on its own.

    A line that introduces a list is a fragment. In a model's text, so is each line that does not
    end like a sentence (headings, list items, formulas). This does not apply to people, who often
    omit the full stop.
    """
    plain = text.rstrip()
    if plain.endswith((":", "：")):
        return True
    if by_person:
        # Half of a formula that was split at a punctuation mark in it.
        return plain.count("\\(") != plain.count("\\)")
    return not _SENTENCE.search(plain) or bool(_FORMULA.search(plain))


def is_sentence(text: str) -> bool:
    """Return True if a text ends like a sentence or like quoted code."""
    return bool(_SENTENCE.search(text))


def is_small_talk(said: ScoredSentence) -> bool:
    """Return True for thanks, praise and greetings without facts, even if they contain a name."""
    plain = strip_source_marks(said.text).strip()
    # "I 100% agree" states no number.
    facts = said.facts.keys() - ({"100"} if _EMPHASIS.search(plain) else set())
    if facts or said.section in ("Decisions", "Preferences"):
        return False
    is_short = len(plain.encode()) < SHORTEST_STATEMENT
    is_cry = plain.endswith("!") and len(plain.split()) <= LONGEST_CRY
    return is_short or (is_cry and " " in plain) or bool(_COURTESY.match(plain))


def normalise_sentence(text: str) -> str:
    """Return a comparison key that ignores case, white space and source marks."""
    return " ".join(strip_source_marks(text).casefold().split())


# Formulas within a model's text: without their block they are not sentences.
_FORMULA = re.compile(r"\\[a-zA-Z()\[\]{}]|[_^]\{")
_SENTENCE = re.compile(rf"[{ENDS}`][\"'”’)\]）」』》*]*\s*$")
# Chinese, Japanese and Korean questions also end in a particle and a full stop.
_QUESTION = re.compile(
    r"(?:[?？؟]|[吗嗎][。]?|[すんたうるい]か[。．]?"
    r"|(?:[습입합됩]니까|(?<!니)까요|[을할될갈볼줄]까|[있없하되인]나요|[인은한]가요)[.。]?)"
    r"[\"'”’)\]）」』》*]*\s*$"
)
_POSSESSIVE = re.compile(r"['’](?:s|d|ve|re|ll|m)?$")
_SMALL = re.compile(r"\b[a-zà-öø-ÿ]{2,}")
_WORD = re.compile(r"[^\W\d_\u2e80-\u9fff]{4,}")
_IDEOGRAPHS = re.compile(r"[\u3400-\u9fff]{2,}")
# A run of letters of a script without capitals, up to the next punctuation; several words in
# scripts with spaces. In Chinese and Japanese lists, short runs count too.
_CLAUSE = re.compile(
    r"[\u3005\u3040-\u30ff\u3400-\u9fff]{3,}|(?<=、)[\u3040-\u30ff\u3400-\u9fff]{2}"
    r"|[\u1100-\u11ff\uac00-\ud7af]{2,}(?: [\u1100-\u11ff\uac00-\ud7af]+){0,8}"
    r"|[\u0590-\u0e7f]{3,}(?: [\u0590-\u0e7f]+){0,8}"
)
# A capitalised word between commas or other sentence marks, or after a greeting.
_ADDRESS = re.compile(
    r"(?:^\W*|,\s+|\b(?i:hey|hi|hello|dear|thanks|thank you|sorry|wow|woah|oh|yeah|yes|yep|no|sure|"
    r"congrats|congratulations|hallo|danke|bonjour|salut|merci|hola|gracias|ciao|grazie)\s+)"
    r"([^\W\d_a-zà-öø-ÿ][^\W\d_]+)(?=\s*(?:[,!?.…]|$))"
)
_YOU = re.compile(
    r"\b(?:you|your|yours|yourself|du|dich|dir|dein\w*|ihr|tu|te|toi|vous|votre|usted|tú|ti)\b",
    re.IGNORECASE,
)
# The same in scripts without capitals: a Chinese name of up to four characters in a sentence with
# "you", and Japanese and Korean names with their usual endings.
_WIDE_ADDRESS = re.compile(
    r"^[\u3400-\u9fff]{2,4}[，,！!](?=.{0,200}[你您])"
    r"|(?<=[你您])(?P<before>.{0,80}[，,])[\u3400-\u9fff]{2,4}(?=[。！？!?]*$)"
    r"|(?:^|(?<=[、，,]))[\u3005\u3040-\u30ff\u3400-\u9fff]{1,6}?(?:さん|ちゃん|くん|君|様|先生)(?:[、，,]|(?=[。！？!?]*$))"
    r"|(?:^|(?<=[,，] ))[\uac00-\ud7af]{1,6}? ?(?:씨|님|아|야)(?:[,，!]|(?=[.!?。！？]*$))"
)
_PRICE = re.compile(
    r"[$€£¥]\s?\d[\d.,]*\d|[$€£¥]\s?\d|\d[\d.,]*\s?(?:[$€£¥]|(?:euros?|dollars?|pounds?|EUR|USD|GBP|CHF)\b|[元块])"
)
_QUOTED = re.compile(r"[\"“«「„]([^\"“”«»「」\n]{3,80})[\"”»」“]|《([^《》\n]{2,80})》")

_LITERAL = re.compile(r"([\"'])([^\"'\n]{3,80})\1")

_DECIDED = re.compile(
    r"\b(?:decided|decision|(?:we|they)(?:['’]ve| have)? agreed|agreed (?:to|on|that)|"
    r"we(?:['’]ll| will) (?:go|use|take)|settled on|(?:i|we)(?:['’]ve| have)? chose(?:n)?|"
    r"beschlossen|entschieden|einigen|décidé|decidid[oa]s?|acordad[oa])\b"
    r"|决定|同意|就用|确定|採用|决策|決め(?:た|まし)|決定|にしま(?:す|した)|결정|정했|하기로",
    re.IGNORECASE,
)
# In a model's text: "We'll use a tree diagram" is not a decision.
_AGREED = re.compile(
    r"\b(?:(?:you|we)(?:['’]ve| have)? (?:decided|agreed|settled on)|the decision (?:is|was))\b"
    r"|决定|确定|決め(?:た|まし)|決定し|결정|정했",
    re.IGNORECASE,
)
_REQUEST = re.compile(
    r"\b(?:(?:can|could|would(?! you (?:like|prefer|rather|ever|say)\b)|will) you|please|bitte|"
    r"k[öo]nnen sie|kannst du|könntest du|"
    r"pouvez-vous|peux-tu|puede[ns]?|por favor)\b|请|帮我|ください|お願い|주세요|부탁",
    re.IGNORECASE,
)
_PREFERRED = re.compile(
    r"\b(?:prefer\w*|favou?rite|i (?:really )?(?:like|love|hate|dislike)"
    r"(?! (?:your|it|that|this|how you|what you|the (?:thought|idea|quote|sound|look|vibe))\b)|"
    r"always(?! (?:here|there|been?|ha(?:ve|s|ving)|a|so|too|very|fun|good|great|nice|cool)\b)|"
    r"don['’]t like|lieber|bevorzug\w*|möchte|immer|préfère|toujours|prefiero|me gusta|siempre)\b"
    r"|喜欢|偏好|不喜欢|讨厌|总是|好き|嫌い|苦手|좋아|싫어|선호",
    re.IGNORECASE,
)
_FORBIDDEN = re.compile(
    r"\b(?:(?<!say )never(?! (?:give up|say)\b)|must(?:n['’]t| not)?(?!['’-]"
    r"| (?:have|feel|seem|look|love|enjoy|bring|mean|miss|really|be"
    r"(?! (?:(?!tired|excit|thrill|relax|amaz)\w+ed|\w+en|done|sent|kept|built|set|paid|made|in|"
    r"at|by|on|below|above|under|over|less|more|between|no)\b))\b)|"
    r"(?:do|should)(?:n['’]t| not) "
    r"(?!know|think|have|like|want|worry|give up|be (?:shy|sorry|too hard))|"
    r"may not|not allowed|forbidden|avoid|allergic|at (?:most|least)|no more than|only if|"
    r"niemals|nie|darf|dürfen|muss|müssen|verboten|jamais|interdit|nunca|prohibido)\b"
    r"|不要|不能|不许|禁止|必须|过敏|必ず|アレルギー|しないで|반드시|금지|하지 마|알레르기",
    re.IGNORECASE,
)
_DONE = re.compile(
    r"\b(?:done|fixed|finished|completed|deployed|merged|shipped|solved|resolved|sent|booked|paid|"
    r"erledigt|fertig|terminé|hecho|listo)\b|完成|已经|解决了|修好|搞定|完了|終わ[っり]|予約し[たま]|완료|끝났|예약했",
    re.IGNORECASE,
)
_TO_DO = re.compile(
    r"\b(?:to-?do|(?:still|remains?) open|open (?:items?|points?|questions?|issues?|tasks?)|"
    r"pending|blocked|remind (?:me|us)|still (?:need|have) to|next steps?|"
    r"noch offen|offene[rns]?|muss noch|reste à|pendiente)\b"
    r"|待办|还需要|需要|尚未|下一步|まだ|しなければ|する必要|아직|해야",
    re.IGNORECASE,
)
_NEEDED = re.compile(
    r"\W*(?:(?:now|then|also|so|and|but|first|next),? )?(?:i|we)(?: still| also| really| just)? "
    r"(?:need|have) to (?!say|admit|agree)",
    re.IGNORECASE,
)
_EMPHASIS = re.compile(r"\b100\s?% (?:agree|sure|certain|right|true)\b", re.IGNORECASE)
_COURTESY = re.compile(
    r"\W*(?:(?:yes|yeah|yep|yup|no|nah|oh|ooh|oof|ugh|aw+|haha|well|ok(?:ay)?)\W+)*(?:[^\W\d_]+,\s+)?"
    r"(?:thanks?|thank you|thx|wo+w|woah|whoa|hey|"
    r"hi|hello|good (?:morning|evening|night)|bye|cool|great|awesome|"
    r"amazing|nice|glad|so (?:nice|good|happy|glad|great)|have an? (?:great|nice|good|lovely)|"
    r"congrat\w*|sounds|that(?:['’]s| is| sounds)|"
    r"you(?:['’]re| are) (?:\w+ )?(?:welcome|right)|welcome|same here|absolutely|certainly|"
    r"definitely|exactly|sure|of course|(?:no|not a) problem|agreed|let['’]s move on|"
    r"i think i['’]m good|"
    r"(?:(?:it|that|everything)(?: all)? )?makes? (?:total |perfect |complete )?sense|"
    r"(?:that|everything)['’]s (?:all )?clear|"
    r"(?:how|what) about you|how are you|"
    r"(?:i )?(?:(?:totally|completely|fully|really|100\s?%|couldn['’]t) )*agree(?! (?:to|on|that))|"
    r"i (?:(?:totally|completely|really) )?(?:hear you|(?:know|see|get) what you mean)|"
    r"no (?:doubts?|worries|rush)|my pleasure|don['’]t mention it|"
    r"(?:so |really |very )*sorry to hear|(?:i )?(?:really )?appreciate (?:your|it|that)|"
    r"your (?:(?:kind )?words|support|encouragement|kindness) (?:\w+ )?(?:means?|helps?|is|are)|"
    r"wishing you|(?:best of |good )luck|take care|see you|long time no|"
    r"talk (?:to you )?(?:soon|later)|"
    r"keep (?:it up|going|up|pushing|at it)|stay (?:strong|positive|safe|tuned|well)|"
    r"(?:i )?can['’]?t wait(?: to (?:see|hear|meet)|\W*$)|"
    r"(?:i['’]m )?looking forward to (?:it|that|hear|see|meet)|"
    r"(?:i )?hope (?:so|all|everything|things|you(?:['’]re| (?:are|find|have|enjoy|feel|get)))|"
    r"i['’]m doing (?:ok|good|fine|well|great)|"
    r"i['’]m (?:(?:so|super|really|very) )?(?:proud of|happy for|excited for) you|"
    r"take a look at (?:this|it)\W*$|"
    r"danke|hallo|gerne|super|toll|merci|bonjour|salut|gracias|hola|de nada)(?![^\W_])"
    r"|.*(?:谢谢|多谢|感谢|感激|不客气|你好|您好|再见|晚安|祝你|加油|太好了|太棒了|很高兴|真高兴|同感|"
    r"保持联系|谨记|试试看|受益|启发|幸运|没错|学到了很多|有道理|你说得|说得(?:很|非常|太)?[对好]|"
    r"(?:好|不错)的?(?:主意|建议|选择|想法))"
    r"|.*(?:ありがと|こんにちは|こんばんは|おはよう|おやすみ|お疲れ|よろしく|いいですね|そうですね|"
    r"なるほど|さようなら|嬉しいです|良いですね|楽しみです|들려주세요|听起来|감사|고마워|고맙|안녕|좋네요|그렇군요|수고|반가워|반갑)",
    re.IGNORECASE,
)
