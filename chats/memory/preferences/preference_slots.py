"""The topic of a preference, which decides whether it replaces an older one."""

import re

# The topic of a text decides whether it replaces an older preference.
_SLOTS = (
    (
        "name",
        r"\b(?:my name is|mein name ist)\b"
        r"(?! (?:not|nicht|on|in|at|auf|an|spelled|written|common)\b)"
        r"|我的名字是",
    ),
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
# A fact about another person does not replace a fact about the user.
_RELATIVES = {
    # After a possessive: "my wife", "meine Tochter", "ma fille", "mi hijo", "моя мама".
    r"\b(?:my|our|his|her|their|your)\s+(?:\w+\s+)?": (
        r"wife|husband|partner|spouse|girlfriend|boyfriend|fianc[ée]e?|son|daughter|child|children"
        r"|kids?|mother|father|mom|mum|dad|parents?|brother|sister|siblings?|grand\w+|uncle|aunt"
        r"|cousin|nephew|niece|friend|friends|colleagues?|co-?workers?|boss|manager|team|client"
        r"|customers?|guests?|neighbou?rs?|roommate|flatmate|doctor|teacher|cat|dog"
    ),
    r"\b(?:mein|unser|sein|ihr|dein)(?:e[nmrs]?)?\s+(?:\w+\s+)?": (
        r"frau|mann|partner(?:in)?|freund(?:in)?|freunde|sohn|tochter|kind(?:er)?|mutter|vater|mama"
        r"|papa|eltern|bruder|schwester|geschwister|oma|opa|gro(?:ß|ss)\w+|onkel|tante|cousine?"
        r"|neffe|nichte|kolleg(?:e|in|en)|chef(?:in)?|team|kund(?:e|in|en)|g[aä]ste?|nachbar\w*"
        r"|mitbewohner\w*|hund|katze"
    ),
    r"\b(?:mon|ma|mes|notre|nos|son|sa|ses|leurs?)\s+(?:\w+\s+)?": (
        r"femme|mari|compagn(?:e|on)|copain|copine|fils|filles?|enfants?|m[èe]re|p[èe]re|maman|papa"
        r"|parents?|fr[èe]res?|s(?:œ|oe)urs?|amie?s?|coll[èe]gues?|chef(?:fe)?|[ée]quipe|clients?"
        r"|invit[ée]s?|voisine?s?|chien|chat"
    ),
    r"\b(?:mis?|nuestr[oa]s?|sus?|m(?:eu|inha)s?|nosso|nossa|(?:il|la|i|le)\s+mi[oaei]i?)\s+": (
        r"espos[oa]|mujer|marido|novi[oa]|pareja|hij[oa]s?|madre|padre|mam[áa]|pap[áa]|padres"
        r"|hermanos?|hermanas?|amig[oa]s?|jefe|jefa|equipo|clientes?|mulher|namorad[oa]|filh[oa]s?"
        r"|m[ãa]e|pai|irm[ãa]o?s?|chefe|equipe|moglie|marito|fidanzat[oa]|figli[oa]?|fratello|sorella"
        r"|amic[oa]|collega|capo|perro|gato|cane|gatto"
    ),
    r"\b(?:мо[йяеёи]|моего|мою|моей|наш\w*|его|е[её]|их)\s+": (
        r"жен[ауы]|муж\w*|мам[ауы]|пап[ауы]|мать|отец|сын\w*|доч\w+|дет\w+|брат\w*|сестр\w+"
        r"|друг\w*|подруг\w+|коллег\w+|начальник\w*|родител\w+|собак\w+|кошк\w+"
    ),
    r"(?:[我他她你您咱](?:们|們)?的?)": (
        r"(?:妈妈?|媽媽?|母亲|母親|爸爸?|父亲|父親|父母|爷爷|奶奶|外婆|外公|老婆|妻子|太太|老公|丈夫"
        r"|女儿|女兒|儿子|兒子|孩子|哥哥?|弟弟?|姐姐?|妹妹?|女朋友|男朋友|女友|男友|朋友|同事|老板|老闆"
        r"|客户|客戶|室友|邻居|鄰居|老师|老師|家人|狗|猫|貓)"
    ),
    r"(?:私|僕|俺|うち|우리|내|제)(?:の)?\s*": (
        r"(?:妻|夫|母|父|息子|娘|子供|兄|弟|姉|妹|友達|友人|彼女|彼氏|同僚|上司|犬|猫|両親"
        r"|아내|남편|엄마|아빠|어머니|아버지|아들|딸|아이|형|누나|언니|오빠|동생|친구|동료|상사)"
    ),
}
_OF_OTHERS = re.compile(
    "|".join(
        f"{before}(?:{relative})(?!\\w)" if before.startswith(r"\b") else f"{before}{relative}"
        for before, relative in _RELATIVES.items()
    )
    + r"|^\s*(?:he|she|they|er|sie|il|elle|[ée]l|ella|lui|lei|он|она)\b|^\s*[他她]",
    re.IGNORECASE,
)
# Slots whose value only the user has.
_OF_ONE = {"name", "timezone", "place", "job", "diet"}
_PIECE = re.compile(r"(?:\s*\b(?:and|und|et|y|e|и)\b\s+)?([^,，;；、]+)")
# A fact or a preference that applies only sometimes replaces nothing.
_CONDITION = re.compile(
    r"^\s*(?:(?:that|dass|que|che|что)\s+)?(?:if|when(?:ever)?|unless|while|wenn|falls|sobald|si"
    r"|quand|lorsque|cuando|se|quando|если|когда)\b|^\s*(?:如果|[当當若]|もし|만약)",
    re.IGNORECASE,
)


def detect_slot(text: str) -> str:
    """Return the slot of a preference, by its first words; `note` by default.

    Also `note` for a fact about another person, and for a text with facts of several slots.
    """
    found = _list_slots(text)
    return found[0] if len(found) == 1 else "note"


def _list_slots(text: str) -> list[str]:
    found = [(slot, match) for slot, pattern in _SLOT_PATTERNS if (match := pattern.search(text))]
    # "I live in Oslo with my wife" is about the user, "my wife lives in Oslo" is not.
    return [
        slot
        for slot, match in found
        if slot not in _OF_ONE or not _OF_OTHERS.search(text, 0, match.start())
    ]


def split_by_slot(text: str) -> list[tuple[str, int, int]]:
    """Return the slot, start and end of each fact of a text: usually one, the whole text.

    A text such as "I live in Oslo, answer in German" has two, so that each is replaced alone.
    """
    pieces = [(detect_slot(piece[1]), *piece.span(1)) for piece in _PIECE.finditer(text)]
    if any(_CONDITION.match(text[start:end]) for _, start, end in pieces):
        return [("note", 0, len(text))]
    slots = [slot for slot, _, _ in pieces]
    if len(pieces) > 1 and "note" not in slots and len(set(slots)) == len(slots):
        return pieces
    return [(detect_slot(text), 0, len(text))]
