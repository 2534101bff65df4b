"""A past request for people: piece by piece, beside the call before it, and as files."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal

from chats.ground.refusals import Refusal
from chats.models import ProviderAccount, Receipt
from chats.prompt import rebuilt
from chats.prompt.rebuilt import Prefix, Rebuilt
from chats.providers import anthropic_wire, wire
from chats.providers.base import ProviderRequest
from chats.providers.kinds import ANTHROPIC_VERSION
from contextpolicy.engine.messages import WireMessage
from contextpolicy.engine.segments import Segment, text_ref
from contextpolicy.models import ModelSpec
from contextpolicy.resolution import values_of

Kind = Literal["same", "gone", "new"]
FAULTS = {
    "erased": "A part of this prompt was erased, so it cannot be built again.",
    "missing": "A part of this prompt is no longer stored, so it cannot be built again.",
    "differs": (
        "What is stored now gives another prompt than the one that was sent: a message, a text or "
        "the receipt was changed behind the product's back. Verify the ledger."
    ),
}
BodyCheck = Literal["same", "options", "unknown"]
BODIES: Mapping[BodyCheck, str] = {
    "same": "The body is, byte for byte, the one that left.",
    "options": (
        "The body that left had the same prompt when it was composed and other options than the "
        "model has today: a limit of the reply, or what a program asked for beside its messages."
    ),
    "unknown": (
        "Of the body as it left no hash is kept: the call was not answered, went through no "
        "network, or was made before hashes of bodies were kept."
    ),
}
HIDDEN = "[The policy hides this text.]"
END = "PALIMPSEST_END"


class RequestNotWhole(Refusal):
    """A request is asked for as a file that cannot be given whole."""

    code = "request_not_whole"
    status = 409
    sentence = (
        "This request cannot be given as a file: a part of it is hidden by the policy, was "
        "erased, or is no longer what was sent. Its page says which."
    )


@dataclass(frozen=True, slots=True)
class SentLine:
    """A message of the request, or one that the call before had in its place."""

    kind: Kind
    role: str
    text: str
    segments: Sequence[Segment] = ()

    @property
    def tokens(self) -> int:
        """The tokens of its pieces, in our count."""
        return sum(segment.tokens for segment in self.segments)

    @property
    def origins(self) -> list[str]:
        """The origins of its pieces, each once."""
        return list(dict.fromkeys(segment.origin for segment in self.segments))


@dataclass(frozen=True, slots=True)
class AsSent:
    """A request as it was sent, and what it shares with the call before."""

    found: Rebuilt
    lines: Sequence[SentLine]
    prefix: Prefix | None
    has_hidden: bool
    body: BodyCheck

    @property
    def body_words(self) -> str:
        """Say whether the body is the one that left."""
        return BODIES[self.body]

    @property
    def fault(self) -> str:
        """Say why it is not what was sent; empty when it is."""
        return FAULTS.get(self.found.fault, "")


def as_sent(receipt: Receipt, *, sees_hidden: bool) -> AsSent:
    """Return the request of a call, compared with the one before it on the branch."""
    found = rebuilt.rebuilt(receipt)
    earlier = rebuilt.receipt_before(receipt)
    before = rebuilt.rebuilt(earlier) if earlier else None
    hides = not sees_hidden and hides_system(receipt)
    hid = not sees_hidden and earlier is not None and hides_system(earlier)
    lines = [] if found.fault else list(lines_of(found, before, hides=hides or hid))
    return AsSent(found, lines, rebuilt.prefix(found, before), hides, body_check(found))


def hides_system(receipt: Receipt) -> bool:
    """Tell whether the policy hides a system text that this call has."""
    values = values_of(receipt.effective_policy)
    kept = (row for row in receipt.segments if row[0] == "system" and row[1] != "chat")
    return values.hide_system_text and any(kept)


def lines_of(found: Rebuilt, before: Rebuilt | None, *, hides: bool) -> Iterator[SentLine]:
    """Yield the messages of a request, and in their places those that only the one before had."""
    owners = owners_of(found)
    old = before.messages if before and not before.fault else ()
    origin, is_open = rebuilt.request_of(found).origin, wire.open_loop(found.messages)
    for kind, message, place in side_by_side(old, found.messages):
        segments = () if place is None else owners[place]
        by = origin if place is not None and place >= is_open else None
        yield SentLine(kind, message.role, told(message, hides=hides, by=by), segments)


def side_by_side(
    old: Sequence[WireMessage], new: Sequence[WireMessage]
) -> Iterator[tuple[Kind, WireMessage, int | None]]:
    """Yield the messages of two requests in order, those of the new one with their places."""
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    for tag, start, end, first, last in matcher.get_opcodes():
        if tag != "equal":
            yield from (("gone", message, None) for message in old[start:end])
        kind: Kind = "same" if tag == "equal" else "new"
        yield from ((kind, new[place], place) for place in range(first, last))


def owners_of(found: Rebuilt) -> list[Sequence[Segment]]:
    """Return for each message of a request the pieces that it is made of; a block's come first."""
    owners: list[Sequence[Segment]] = []
    for segments, count in found.pieces:
        if count:
            owners += [segments, *([()] * (count - 1))]
    return owners


def told(message: WireMessage, *, hides: bool, by: str | None = None) -> str:
    """Write a message of a request, with its tool calls and the fields that went to `by`."""
    if hides and message.role == "system":
        return HIDDEN
    calls = [
        f"{call.name}({wire.sendable_arguments(call.arguments)})" for call in message.tool_calls
    ]
    own = wire.fields_sent(message, by=by)
    fields = f"[For its server: {json.dumps(own, ensure_ascii=False)}]" if own else ""
    return "\n".join([part for part in (message.shown(by_hash=True), *calls, fields) if part])


def body_json(found: Rebuilt) -> str:
    """Write the body of the request as it goes over the wire, as it went where that is known.

    Images are named in it, by their hashes.
    """
    made = list(bodies(found))
    known = found.receipt.body_sha256
    return next((text for text in made if text_ref(text) == known), made[0])


def bodies(found: Rebuilt, *, with_images: bool = False) -> Iterator[str]:
    """Yield the body in each form that a server may have turned out to take, the plain one first.

    The adapter finds the form out by itself and keeps it in memory alone.
    """
    request = rebuilt.request_of(found, with_images=with_images)
    yield from forms_of(request, is_anthropic=_is_anthropic(found))


def forms_of(request: ProviderRequest, *, is_anthropic: bool) -> Iterator[str]:
    """Yield the body of a request in each form that its server may take, the plain one first."""
    if is_anthropic:
        yield as_json(anthropic_wire.body_of(request))
        return
    for limit_name in ("max_tokens", "max_completion_tokens"):
        for takes_usage in (True, False):
            yield as_json(
                wire.body_of(request, limit_name=limit_name, takes_usage_option=takes_usage)
            )


def as_json(body: Mapping[str, Any]) -> str:
    """Write a body as the vendors' packages do."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))


def body_check(found: Rebuilt) -> BodyCheck:
    """Compare the body as it is built now with the bytes that left."""
    known = found.receipt.body_sha256
    if found.fault or not known:
        return "unknown"
    return compared(bodies(found, with_images=True), known)


def compared(made: Iterator[str], known: str) -> BodyCheck:
    """Tell whether one of the bodies as they are built now has the hash of the one that left."""
    return "same" if any(text_ref(text) == known for text in made) else "options"


def as_curl(body: str, *, is_anthropic: bool) -> str:
    """Write a request with this body as a command for a shell; no secret is in it.

    The body is ASCII on one line, so no word in it can end it.
    """
    body = json.dumps(json.loads(body), separators=(",", ":"))
    path, version = "/chat/completions", ""
    if is_anthropic:
        path, version = "/v1/messages", f'  -H "anthropic-version: {ANTHROPIC_VERSION}" \\\n'
    return (
        "# Set BASE_URL to the provider's address and API_KEY to its key first.\n"
        f'curl -sS "$BASE_URL{path}" \\\n'
        f'  -H "Authorization: Bearer $API_KEY" \\\n{version}'
        '  -H "Content-Type: application/json" \\\n'
        f"  --data-binary @- <<'{END}'\n{body}\n{END}\n"
    )


def _is_anthropic(found: Rebuilt) -> bool:
    """Tell whether the model's server speaks Anthropic's interface, as it is set up today."""
    return speaks_anthropic(rebuilt.model_of(found.receipt))


def speaks_anthropic(model: ModelSpec | None) -> bool:
    """Tell whether a model's server speaks Anthropic's interface, as it is set up today."""
    of_model = ProviderAccount.objects.filter(slug=model.provider if model else "")
    return of_model.filter(kind=ProviderAccount.Kind.ANTHROPIC).exists()


FORMS = {
    "json": ("request.json", "application/json"),
    "curl": ("request.sh", "text/plain; charset=utf-8"),
}


@dataclass(frozen=True, slots=True)
class RequestFile:
    """A request as a file."""

    name: str
    kind: str
    text: str


def file_of(sent: AsSent, *, form: str) -> RequestFile:
    """Write a request in one of the `FORMS`. Raises `RequestNotWhole`."""
    if sent.has_hidden or sent.found.fault:
        raise RequestNotWhole
    is_anthropic = _is_anthropic(sent.found)
    return written(body_json(sent.found), form=form, is_anthropic=is_anthropic)


def written(body: str, *, form: str, is_anthropic: bool) -> RequestFile:
    """Write a request with this body in one of the `FORMS`."""
    name, kind = FORMS[form]
    text = as_curl(body, is_anthropic=is_anthropic) if form == "curl" else body
    return RequestFile(name, kind, text)
