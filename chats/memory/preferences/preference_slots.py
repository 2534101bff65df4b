"""The topic of a preference, which decides whether it replaces an older one."""

import re

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


def detect_slot(text: str) -> str:
    """Return the slot of a preference, by its first words; `note` by default."""
    return next((slot for slot, pattern in _SLOT_PATTERNS if pattern.search(text)), "note")
