"""Finds the name that a person gives for themselves in a sentence, such as "call me Bob"."""

import re

TITLES = r"dr|prof|mrs?|ms|mx|st|herr|frau|hr|fr|sra?|srta|sig|mme|mlle|dott|dra?|д-р"
# Days of the week.
DAYS = (
    r"(?:mon|tues|wednes|thurs|fri|satur|sun)day|montag|dienstag|mittwoch|donnerstag|freitag|samstag"
    r"|sonnabend|sonntag|lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche|lunes|martes"
    r"|mi[ée]rcoles|jueves|viernes|s[áa]bado|luned[ìi]|marted[ìi]|mercoled[ìi]|gioved[ìi]|venerd[ìi]"
    r"|sabato|segunda-feira|ter[çc]a-feira|quarta-feira|quinta-feira|sexta-feira"
    r"|понедельник|вторник|сред[ау]|четверг|пятниц[ау]|суббот[ау]|воскресень[ея]"
)
POLITE = (
    r"(?:(?:please|pls|bitte|ok(?:ay)?|hi|hello|hallo|s[’']il (?:te|vous) pla[iî]t|por favor"
    r"|per favore|пожалуйста|请|請|麻烦|من فضلك|from now on|in (?:the )?future|ab (?:jetzt|sofort)"
    r"|à partir de maintenant|d[ée]sormais|d[’']ora in poi|(?:de ahora|a partir de agora)(?: en"
    r" adelante)?|впредь|以后|以後|今后|今後は?|これから(?:は)?|앞으로는?|من الآن فصاعدا)"
    r"[,，、!،]?\s*)*"
)
_CALLED = re.compile(
    rf"\s*{POLITE}(?:(?:(?:you\s+(?:can|may)\s+)?call\s+me|my\s+name\s+is"
    r"|nenn(?:e|en\s+sie)?\s+mich|du\s+kannst\s+mich|mein\s+name\s+ist|ich\s+hei(?:ß|ss)e"
    r"|appelle[- ]moi|appelez[- ]moi|(?:tu\s+peux|vous\s+pouvez)\s+m[’']appeler"
    r"|je\s+m[’']appelle|mon\s+(?:pré)?nom\s+est"
    r"|ll[áa]ma(?:me)|ll[áa]meme|puede[s]?\s+llamarme|me\s+llamo|mi\s+nombre\s+es"
    r"|chiamami|mi\s+chiami|(?:puoi|può)\s+chiamarmi|mi\s+chiamo|il\s+mio\s+nome\s+[èe]"
    r"|(?:podes?\s+)?(?:me\s+cham(?:a|e|ar)|cham(?:a|e|ar)-me)(?:\s+de)?"
    r"|(?:eu\s+)?me\s+chamo|chamo-me|(?:o\s+)?meu\s+nome\s+[ée]"
    r"|(?:(?:можешь|можете)\s+)?(?:называ(?:й(?:те)?|ть)|зов(?:и(?:те)?)|звать)\s+меня"
    r"|меня\s+зовут|мо[её]\s+имя"
    r"|ناد(?:ني|يني)|يمكنك\s+(?:أن\s+تنادي(?:ني|نى)|مناداتي)|اسمي(?:\s+هو)?"
    r")(?:\s*:\s*|\s+)|(?:[你您]?可以)?(?:叫我|我的名字(?:是|叫)|我叫)\s*"
    r")(?P<text>.+)",
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
    rf"(?:(?:{TITLES})\.?\s+){{0,3}}[^\W\d_][\w’'-]*(?: (?-i:[^\W\d_a-zà-ÿа-я])[\w.’'-]*){{0,3}}",
    re.IGNORECASE,
)
_AFTER_A_NAME = re.compile(
    r"\s*(?:[.!。！]*\s*|[,，、،;].*|(?:nennen|please|bitte|from now on|ab jetzt|por favor"
    r"|à partir de maintenant"
    r"|d[’']ora in poi|de ahora en adelante|a partir de agora|впредь|пожалуйста)\b.*|(?:and|und"
    r"|et|y|e|и)\b.*)",
    re.IGNORECASE | re.DOTALL,
)
_NO_NAME = re.compile(
    rf"(?:(?:a|an|the|ein|eine|back|when|if|later|soon|now|anytime|anything|whatever|what|something"
    rf"|names|by|again|maybe|not|on|at|in|your?|crazy|old-fashioned|spel[lt]\w*|written"
    rf"|tomorrow|tonight|today|zurück|nicht|wenn|später|morgen|heute|bald|dich|dir|das|so|wie|was"
    rf"|jetzt"
    rf"|un[ea]?|le|la|les|comment|quand|demain|plus|si|ce|bientôt"
    rf"|el|los|las|ma[ñn]ana|cuando|c[óo]mo|qu[ée]|m[áa]s|luego"
    rf"|il|lo|um|uma|quando|come|domani|amanh[ãa]|cosa|pi[ùu]|dopo|presto|como|mais|depois|logo"
    rf"|когда|если|завтра|потом|как|на|в|к|по|не|позже"
    rf"|ما|ماذا|عندما|لاحقا|لاحقاً|غدا|غداً|مكتوب|مكتوبة|إذا|متى|في|على|ليس"
    rf"|(?:{TITLES})\.?$|{DAYS})(?!\w)"
    # Chinese has no spaces: a word that occurs in no name.
    rf"|今|明天|[^ ,，。]{{0,3}}[的了他她它你您们們什怎么麼谁誰这這那]|起床|一声"
    rf"|一下|做|去|[来來](?:\Z|[了吧接])|不|何(?:[てとかも]|\Z)|なん|뭐|무엇)",
    re.IGNORECASE,
)
# The first letter of a Chinese name. The name is one word: a space often replaces a comma.
_HAN = re.compile(r"[\u3400-\u9fff]")
_HAN_NAME = re.compile(r"\w+(?:[·•・]\w+)*")
_AFTER_A_HAN_NAME = re.compile(r"\s*(?:[^\w\s·•・].*)?|\s+.*", re.DOTALL)
# Chinese words behind a name: "is fine", "if you like".
_POLITE_ENDING = re.compile(
    r"(?:就(?:可以|好|行|成|是)[了啦]?|即可|可以[了吗嗎]?|好(?:[了啦吗嗎]|不好)|行[了吗嗎]"
    r"|[吧啦啊呀哦喔噢呢嘛哟喲喽嘍咯])+\Z"
)
# In letters: longer words without a dot are clauses.
_LONGEST_HAN_NAME = 5
# The verb of a Chinese name also means "to order" and "to tell", and "me" can be their subject.
_ORDERED = (
    r"外[卖賣]|[车車](?:\Z|[去来來到回接送过過])|出租|的士|[计計]程|滴滴|[网網][约約]|快[递遞]|救[护護]"
    r"|[快慢]|[吃喝睡停等][一-龥]*|苦|醒|先|再|[帮幫]|[写寫]|出去|[过過][来來去]|上[去来來学學]|下[去来來]"
    r"|[进進][去来來]|回[去来來家]|起[来來]|加班|[闭閉]嘴|[开開][会會]|上班|[学學][习習]|安[静靜]|[滚滾]|救命|道歉"
)
_PEOPLE = (
    r"人|[别別]人|大家|朋友|同事|同[学學]|老[师師]|[医醫]生|警察|保安|客服|服[务務]"
    r"|[妈媽]+|爸+|老[婆公]|[爷爺]+|奶+|哥+|姐+|弟+|妹+|[儿兒]子|女[儿兒]|孩子"
)
_NO_HAN_NAME = {
    # "I call …"
    True: re.compile(rf"{_ORDERED}|{_PEOPLE}"),
    # "Call me …": a person after it is a name; with a verb, it is the recipient of a request.
    False: re.compile(rf"{_ORDERED}|(?:{_PEOPLE})[来來去帮幫做给給把别別不写寫买買回起]"),
}


def find_stated_name(words: str) -> tuple[int, int] | None:
    """Return the position of the name that a sentence states; None if it states none."""
    behind = _CALLED_BEHIND.fullmatch(words)
    if behind:
        return behind.span(behind.lastgroup or "")
    called = _CALLED.match(words)
    if called is None:
        return None
    start = called.start("text")
    if _HAN.match(words, start):
        return _find_han_name(words, start)
    name = _NAME.match(words, start)
    if name is None:
        return None
    end = _trim_politeness(words, start, name.end())
    is_whole = _AFTER_A_NAME.fullmatch(words, name.end()) or _is_polite(words[name.end() :])
    return (start, end) if is_whole and not _NO_NAME.match(words[start:end]) else None


def _find_han_name(words: str, start: int) -> tuple[int, int] | None:
    run = _HAN_NAME.match(words, start)
    if run is None or not _AFTER_A_HAN_NAME.fullmatch(words, run.end()):
        return None
    end = _trim_politeness(words, start, run.end())
    name = words[start:end]
    is_subject = words[:start].rstrip().endswith("我叫")
    is_clause = len(name) > _LONGEST_HAN_NAME and not re.search("[·•・]", name)
    if is_clause or _NO_NAME.match(name) or _NO_HAN_NAME[is_subject].match(name):
        return None
    return start, end


def _trim_politeness(words: str, start: int, end: int) -> int:
    """Return the end of a name without the words that make the request polite."""
    ending = _POLITE_ENDING.search(words, start + 1, end)
    return ending.start() if ending else end


def _is_polite(text: str) -> bool:
    """Return True if the text after a name only makes the request polite."""
    return _POLITE_ENDING.match(text.strip(" .!。！~～")) is not None
