"""Finds all facts of a text in one scan, in time linear in its length.

In long runs without a break (an email address, a path, thousands of letters of base64) a regular
expression would restart at every letter. Such runs are found first, once each.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple, get_args

Kind = Literal["url", "date", "identifier", "number", "name"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
    r"sep(?:t(?:ember)?)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
# A URL ends before quotation marks, unbalanced brackets, signs of tables, and letters of scripts
# without spaces, which follow it directly. Punctuation and Markdown at its end do not belong to it.
_NOT_IN_URLS = (
    r"\s<>\"'`|()\[\]{}\\^“”„‘’«»…\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3000-\u30ff\u3400-\u9fff"
    r"\uac00-\ud7af\uf900-\ufaff\uff00-\uffef"
)
_IN_BRACKETS = rf"\([^{_NOT_IN_URLS}]*\)"
URL_PATTERN = (
    rf"(?:https?://|www\.)(?:[^{_NOT_IN_URLS}]|{_IN_BRACKETS})*"
    rf"(?:[^{_NOT_IN_URLS}*_~.,;:!?]|{_IN_BRACKETS})"
)
# The kinds are in order of precedence. Email addresses and paths come between `quoted` and `word`.
_PATTERN = re.compile(
    rf"(?P<url>{URL_PATTERN})"
    r"|(?P<date>\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2})?)?|\d{1,2}[./]\d{1,2}[./]\d{2,4}"
    r"|\d{4}年\d{1,2}月(?:\d{1,2}日)?|\d{1,2}月\d{1,2}日|\d{1,2}:\d{2}(?::\d{2})?"
    rf"|\b(?i:{_MONTH})\.? \d{{1,2}}(?:st|nd|rd|th)?(?:, \d{{4}})?\b"
    rf"|\b\d{{1,2}}\.? (?i:{_MONTH})\b(?: \d{{4}})?)"
    r"|(?P<quoted>`[^`\n]{1,80}`)"
    r"|(?P<word>\b[A-Za-z]\w*(?:_\w+)+\b|\b[a-z]+[A-Z]\w*\b"
    r"|\b[A-Z]{2}[A-Z0-9]*+(?:-?\d++\b|(?<=\d)\b)"
    r"|\bv\d+(?:\.\d+)+\b|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}\b)"
    r"|(?P<number>\d+(?:[.,]\d+)*)"
    r"|(?P<name>\b[A-ZÀ-ÖØ-Þ][\w'’-]+(?: [A-ZÀ-ÖØ-Þ][\w'’-]+)*)"
)
_KIND_OF: dict[str | None, Kind] = {
    "url": "url",
    "date": "date",
    "quoted": "identifier",
    "word": "identifier",
    "number": "number",
    "name": "name",
}
_BEFORE_RUNS = frozenset({"url", "date", "quoted"})
_MAIL_RUN = re.compile(r"[\w.+-]++(?P<at>@(?=(?P<host>[\w-]+\.[\w.]+)))?")
_PATH_RUN = re.compile(r"[\w./-]+")
_PATH = re.compile(r"(?:[\w.-]*/)+[\w.-]+\.\w+")


def simplify_url(url: str) -> str:
    """Return a URL without what two spellings of an address differ in.

    These are capitals, `http` or `https`, and a final slash.
    """
    return _SCHEME.sub("", url.casefold()).rstrip("/")


_SCHEME = re.compile(r"https?://")


class FoundFact(NamedTuple):
    """A fact of a text: its kind, and its start and end index."""

    kind: Kind
    start: int
    end: int


class _Span(NamedTuple):
    """A fact that may begin anywhere from `first` to `last` and always ends at `end`."""

    first: int
    last: int
    end: int


def scan_facts(text: str) -> Iterator[FoundFact]:
    """Yield the facts of a text, in order and without overlap."""
    runs = (deque(_mail_addresses(text)), deque(_paths(text)))
    place = 0
    plain = _PATTERN.search(text)
    while True:
        if plain and plain.start() < place:
            plain = _PATTERN.search(text, place)
        run = min((_find_following(spans, place) for spans in runs), key=lambda found: found.start)
        if plain is None and run.start > len(text):
            return
        if plain is None or run.start < plain.start() + (plain.lastgroup not in _BEFORE_RUNS):
            found = run
        else:
            found = FoundFact(_KIND_OF[plain.lastgroup], plain.start(), plain.end())
        yield found
        place = found.end


def _find_following(spans: deque[_Span], place: int) -> FoundFact:
    """Return the first fact that begins at `place` or later.

    Without one, the returned fact begins after the end of any text.
    """
    while spans and spans[0].last < place:
        spans.popleft()
    if not spans:
        return _NOTHING
    return FoundFact("identifier", max(place, spans[0].first), spans[0].end)


_NOTHING = FoundFact("identifier", 1 << 62, 1 << 62)


def _mail_addresses(text: str) -> Iterator[_Span]:
    if "@" not in text:
        return
    for run in _MAIL_RUN.finditer(text):
        if run["at"]:
            yield _Span(run.start(), run.start("at") - 1, run.end("host"))


def _paths(text: str) -> Iterator[_Span]:
    if "/" not in text:
        return
    for run in _PATH_RUN.finditer(text):
        path = _PATH.match(text, run.start()) if "/" in run[0] else None
        if path:
            yield _Span(path.start(), text.rindex("/", path.start(), path.end()), path.end())


def find_standing_facts(facts: Iterable[str], text: str) -> set[str]:
    """Return the facts that a text contains as whole words.

    For example, 12 is not found in 2012, and ann is not found in hannah. The caller must have
    casefolded the facts and the text. One scan looks for all facts, word by word (Aho-Corasick).
    """
    tree = _Tree(facts)
    return {fact for fact, end in tree.walk(text) if _is_whole(text, end - len(fact), end)}


_TOKEN = re.compile(r"[a-z0-9]+|[^a-z0-9]")
_GOES_ON = re.compile(r"[.,]\d")


def _is_whole(text: str, start: int, end: int) -> bool:
    """Return True if a match is not part of a longer word or number; words are always whole."""
    if _is_word(text[start]) and text[start - 1 : start] in ("_", "."):
        return False
    return not (_is_word(text[end - 1]) and _GOES_ON.match(text, end))


def _is_word(letter: str) -> bool:
    return letter.isascii() and letter.isalnum()


class _Tree:
    """Facts as a trie of words. `fallback` is the longest suffix of a node that begins a fact.

    `shorter` is the next node on the fallback path that ends a fact; 0, the root, means none.
    """

    def __init__(self, facts: Iterable[str]) -> None:
        self.following: list[dict[str, int]] = [{}]
        self.ending: dict[int, str] = {}
        for fact in facts:
            node = 0
            for token in _TOKEN.findall(fact):
                node = self.following[node].setdefault(token, len(self.following))
                if node == len(self.following):
                    self.following.append({})
            self.ending[node] = fact
        self.fallback = [0] * len(self.following)
        self.shorter = [0] * len(self.following)
        self._link()

    def _link(self) -> None:
        waiting = deque(self.following[0].values())
        while waiting:
            node = waiting.popleft()
            for token, child in self.following[node].items():
                back = self.step(self.fallback[node], token)
                self.fallback[child] = back
                self.shorter[child] = back if back in self.ending else self.shorter[back]
                waiting.append(child)

    def step(self, node: int, token: str) -> int:
        """Return the node that follows `node` after one more token."""
        while node and token not in self.following[node]:
            node = self.fallback[node]
        return self.following[node].get(token, 0)

    def walk(self, text: str) -> Iterator[tuple[str, int]]:
        """Yield each match: the fact and its end position."""
        node = 0
        for token in _TOKEN.finditer(text):
            node = self.step(node, token[0])
            ends = node if node in self.ending else self.shorter[node]
            while ends:
                yield self.ending[ends], token.end()
                ends = self.shorter[ends]
