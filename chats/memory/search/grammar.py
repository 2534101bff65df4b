"""The grammar and question words of a question's language, which tell nothing about its topic."""

import re
from collections.abc import Sequence
from functools import lru_cache

from chats.memory.search.asking import normalise_letters
from chats.memory.search.days import mask_dates
from chats.memory.search.words import (
    STOP_WORDS,
    Word,
    find_words,
    list_search_stems,
    load_stop_words,
)

# One language a line, after its code.
_LISTED = """\
de der die das den dem des ein eine einen einem einer eines und oder aber nicht kein keine ist sind
de war waren wird werden wurde wurden sein hat haben habe hatte hatten ich du er sie es wir ihr mich
de mir dich dir uns euch ihm ihn ihnen mein meine meinen meinem meiner meines dein deine deinen sein
de seine seinen unser unsere was wer wen wem wo wie wann warum wieso wohin woher welche welcher
de welches welchen welchem wessen mit von zu zum zur in im an am auf für bei nach vor über unter aus
de um als auch noch nur schon so dass wenn man sich diese dieser dieses diesen worüber wofür wieviel
de heißt hieß heißen kann können gibt es
fr le la les l un une des du de d et ou mais est sont était étaient sera a ont avait avez as ai
fr avons je j tu il elle on nous vous ils elles me m te t se s mon ma mes ton ta tes son sa ses
fr notre nos votre vos leur leurs que qu qui quoi quel quelle quels quelles quand où comment
fr pourquoi combien dans sur sous avec sans pour par en au aux à ce cet cette ces ne n pas plus y
fr déjà être avoir fait faire c donc si appelle
es el la los las lo un una unos unas de del al y e o u pero es son era eran fue fueron está están
es hay ha han he había tengo tiene yo tú él ella nosotros ellos ellas me te se nos mi mis tu tus su
es sus nuestro nuestra que qué quien quién quiénes cual cuál cuáles cuando cuándo donde dónde como
es cómo cuanto cuánto cuánta cuántos cuántas por para con sin en no más ya este esta estos estas
es ese esa eso llama ser estar sobre
it il lo la i gli le l un uno una di del della dello dei degli delle a al alla ai da dal dalla in
it nel nella con su sul sulla per e ed o ma è sono era erano ha hanno ho abbiamo io tu lui lei noi
it voi loro mi ti si ci vi mio mia miei mie tuo tua suo sua nostro nostra che chi cosa quale quali
it qual quando dove come perché quanto quanta quanti quante non più questo questa quello quella
it chiama essere avere
pt o a os as um uma uns umas de do da dos das em no na nos nas e ou mas é são era eram foi foram
pt está estão há tem têm tenho eu tu ele ela nós eles elas me te se meu minha meus minhas teu tua
pt seu sua nosso nossa que quem qual quais quando onde como quanto quanta quantos quantas por para
pt com sem não mais já este esta isto esse essa isso ao à chama ser estar sobre
nl de het een en of maar is zijn was waren wordt werd heeft hebben had ik jij je u hij zij ze wij
nl we jullie mij me mijn jouw uw ons onze hun haar dat die dit deze wat wie waar wanneer welke welk
nl waarom hoe hoeveel met van voor op in te ten aan bij naar uit over niet geen er ook nog heet
ru и а но или не ни в во на с со к ко о об от до из за по у для при без под над я ты он она оно мы
ru вы они мне меня мной тебе тебя его ее её ей нам нас вам вас им их мой моя моё мои твой наш наша
ru наше наши ваш свой это этот эта эти тот та те что кто где когда как какой какая какое какие
ru каком какую какого почему зачем сколько чей куда откуда был была было были есть быть ли же бы
ru чем чём чему о уже еще ещё так там тут зовут называется
ar ما ماذا من متى أين كيف لماذا هل كم أي هو هي هم أنا أنت نحن في على إلى عن مع هذا هذه ذلك تلك كان
ar كانت لا لم لن قد التي الذي لي لك
"""
_BY_LANGUAGE: dict[str, frozenset[str]] = {}
for _line in _LISTED.splitlines():
    _code, *_some = _line.split()
    _BY_LANGUAGE[_code] = _BY_LANGUAGE.get(_code, frozenset()) | {*map(normalise_letters, _some)}
_ENGLISH = frozenset(map(normalise_letters, STOP_WORDS))
# Characters of Chinese and Japanese that mostly belong to grammar and question words.
_WIDE_GRAMMAR = frozenset(
    "什么甚麼的地得我你您他她它们們是吗嗎叫了着过過在有这這那哪谁誰呢吧个個和与與都也就不没沒"
    "很几幾怎样樣为為何把被请請问問会會能要想又还還"
    "はがをにでとものへからまでよりですますかねよなだしたてるれっいうあこそどん何"
)
# Words about the conversation itself.
_ABOUT_TALK = re.compile(
    r"\b(?:talk(?:ed|ing)?|discuss(?:ed|ing)?|discussions?|chat(?:ted|ting|s)?|sa(?:y|id)|tell|told"
    r"|mention(?:ed)?|conversations?|speak|spoken?|ask(?:ed)?|topics?|summari[sz]e[ds]?|summary"
    r"|recap|happen(?:ed)?|messages?|everything|things?|list|show|remember|go through"
    r"|gered|geredet|reden|gesprochen|sprechen|besprochen|unterhalten|gesagt|geschrieben|erzählt"
    r"|gefragt|passiert|gesprächs?|zusammen(?:fassen|fassung|gefasst)?|fasse?|themen"
    r"|parl(?:é|er|ions|ons)|discuté|dit|raconté|passé|résum(?:e|é|er|ez)"
    r"|habl(?:amos|ado|ar|é)|dij(?:e|imos|iste)|discutimos|conversación|resum(?:e|en|ir)|pasó|temas"
    r"|parlato|detto|discusso|conversazione|riassum(?:i|ere)|fal(?:amos|ado|ar)|conversamos"
    r"|conversa|disse|resum[aoi]|gepraat|besproken|gezegd|gesprek|samenvat\w*"
    r"|говорил[аи]?|обсуждал[аи]?|сказал[аи]?|разговор\w*|беседовали|подведи|итог\w*"
    r"|تحدثنا|ناقشنا|قلت|قلنا|محادث\w*)\b"
    "|聊天?|谈话?|談|讨论|討論|说|說|讲|講|提到|总结|總結|回顾|内容|话题|告诉|列出|事情?"
    "|話し?た?|会話|まとめ|要約|言っ|얘기|이야기|대화|말했|요약|했|คุย|พูด|สรุป",
    re.IGNORECASE,
)


@lru_cache(maxsize=64)
def load_grammar_stems(language: str) -> frozenset[str]:
    """Return the stems of a language's grammar and question words; empty for English."""
    words = _BY_LANGUAGE.get(language, frozenset())
    return frozenset(stem for word in words for stem in list_search_stems(word))


def detect_grammar_language(text: str) -> str:
    """Return the language whose grammar words a text has most often; empty for English."""
    words = re.findall(r"[^\W\d_]+", normalise_letters(text))
    numbers = {code: sum(word in some for word in words) for code, some in _BY_LANGUAGE.items()}
    best = max(numbers, key=lambda code: numbers[code])
    return best if numbers[best] > sum(word in _ENGLISH for word in words) else ""


def select_topic_words(found: Sequence[Word], text: str) -> list[Word]:
    """Return the words of a text that are not grammar or question words of its language."""
    stops = load_stop_words() | load_grammar_stems(detect_grammar_language(text))
    return [
        word for word in found if word.stem not in stops and not _WIDE_GRAMMAR.issuperset(word.stem)
    ]


def mentions_talk(text: str) -> bool:
    """Return True if a text has a word about the conversation, such as "talk" or "said"."""
    return _ABOUT_TALK.search(text) is not None


def count_topics(text: str) -> int:
    """Return the number of words about a topic, apart from dates and the conversation itself.

    Overlapping and adjoining pieces count as one word.
    """
    plain = _ABOUT_TALK.sub(lambda run: " " * len(run[0]), mask_dates(text))
    number, end = 0, -1
    for word in select_topic_words(find_words(plain), plain):
        number += word.start > end or (word.full != "" and word.start >= end)
        end = max(end, word.end)
    return number
