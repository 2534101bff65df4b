"""A past request for display: as segments, compared with the previous call, and as files."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal

from django.utils.translation import gettext, gettext_noop

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
    "erased": gettext_noop("A part of this prompt was erased, so it cannot be rebuilt."),
    "missing": gettext_noop("A part of this prompt is no longer stored, so it cannot be rebuilt."),
    "differs": gettext_noop(
        "The stored data gives a different prompt from the one that was sent, so a message, a text"
        " or the receipt was changed outside the product. Verify the ledger."
    ),
}
BodyCheck = Literal["same", "options", "unknown"]
BODIES: Mapping[BodyCheck, str] = {
    "same": gettext_noop("The request body is identical to the request as sent."),
    "options": gettext_noop(
        "The request as sent had the same prompt, but different options from the current ones, "
        "such as the reply limit or the options of a client."
    ),
    "unknown": gettext_noop(
        "No hash of the request body is stored: the call was not answered, used no network, or is "
        "older than this check."
    ),
}
HIDDEN = "[The policy hides this text.]"
END = "PALIMPSEST_END"


class RequestNotWhole(Refusal):
    """A request that is incomplete cannot be downloaded as a file."""

    code = "request_not_whole"
    status = 409
    sentence = gettext_noop(
        "This request is not available as a file: a part of it is hidden by the policy, was "
        "erased, or has changed. Its page has the details."
    )


@dataclass(frozen=True, slots=True)
class SentLine:
    """A message of the request, or a message of the previous call that was removed."""

    kind: Kind
    role: str
    text: str
    segments: Sequence[Segment] = ()

    @property
    def tokens(self) -> int:
        """The tokens of its segments, in our count."""
        return sum(segment.tokens for segment in self.segments)

    @property
    def origins(self) -> list[str]:
        """The distinct origins of its segments."""
        return list(dict.fromkeys(segment.origin for segment in self.segments))


@dataclass(frozen=True, slots=True)
class AsSent:
    """A request as sent, and the prefix it shares with the previous call."""

    found: Rebuilt
    lines: Sequence[SentLine]
    prefix: Prefix | None
    has_hidden: bool
    body: BodyCheck

    @property
    def body_words(self) -> str:
        """A sentence on whether the body equals the request as sent."""
        return gettext(BODIES[self.body])

    @property
    def fault(self) -> str:
        """A sentence on why the request differs from the one sent. Empty if it is the same."""
        return gettext(FAULTS.get(self.found.fault, ""))


def as_sent(receipt: Receipt, *, sees_hidden: bool) -> AsSent:
    """Return the request of a call, compared with the previous one on the branch."""
    found = rebuilt.rebuilt(receipt)
    earlier = rebuilt.receipt_before(receipt)
    before = rebuilt.rebuilt(earlier) if earlier else None
    hides = not sees_hidden and hides_system(receipt)
    hid = not sees_hidden and earlier is not None and hides_system(earlier)
    lines = [] if found.fault else list(lines_of(found, before, hides=hides or hid))
    return AsSent(found, lines, rebuilt.prefix(found, before), hides, body_check(found))


def hides_system(receipt: Receipt) -> bool:
    """Return True if the policy hides a system text of this call."""
    values = values_of(receipt.effective_policy)
    kept = (row for row in receipt.segments if row[0] == "system" and row[1] != "chat")
    return values.hide_system_text and any(kept)


def lines_of(found: Rebuilt, before: Rebuilt | None, *, hides: bool) -> Iterator[SentLine]:
    """Yield the messages of a request, with removed messages of the previous call in their
    places.
    """
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
    """Yield the messages of two requests in order, those of the new one with their index."""
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    for tag, start, end, first, last in matcher.get_opcodes():
        if tag != "equal":
            yield from (("gone", message, None) for message in old[start:end])
        kind: Kind = "same" if tag == "equal" else "new"
        yield from ((kind, new[place], place) for place in range(first, last))


def owners_of(found: Rebuilt) -> list[Sequence[Segment]]:
    """Return the segments of each message of a request.

    A block's segments belong to its first message.
    """
    owners: list[Sequence[Segment]] = []
    for segments, count in found.pieces:
        if count:
            owners += [segments, *([()] * (count - 1))]
    return owners


def told(message: WireMessage, *, hides: bool, by: str | None = None) -> str:
    """Format a message of a request, with its tool calls and the fields sent to `by`."""
    if hides and message.role == "system":
        return HIDDEN
    calls = [
        f"{call.name}({wire.sendable_arguments(call.arguments)})" for call in message.tool_calls
    ]
    own = wire.fields_sent(message, by=by)
    fields = f"[Fields for its server: {json.dumps(own, ensure_ascii=False)}]" if own else ""
    return "\n".join([part for part in (message.shown(by_hash=True), *calls, fields) if part])


def body_json(found: Rebuilt) -> str:
    """Return the request body as JSON, in the form that was sent if that is known.

    Images are replaced by their hashes.
    """
    made = list(bodies(found))
    known = found.receipt.body_sha256
    return next((text for text in made if text_ref(text) == known), made[0])


def bodies(found: Rebuilt, *, with_images: bool = False) -> Iterator[str]:
    """Yield the body in each form that the server may have required, the default form first.

    The adapter detects the form at run time and keeps it only in memory.
    """
    request = rebuilt.request_of(found, with_images=with_images)
    yield from forms_of(request, is_anthropic=_is_anthropic(found))


def forms_of(request: ProviderRequest, *, is_anthropic: bool) -> Iterator[str]:
    """Yield a request's body in each form that its server may require, the default form first."""
    if is_anthropic:
        yield as_json(anthropic_wire.body_of(request))
        return
    for limit_name in ("max_tokens", "max_completion_tokens"):
        for takes_usage in (True, False):
            yield as_json(
                wire.body_of(request, limit_name=limit_name, takes_usage_option=takes_usage)
            )


def as_json(body: Mapping[str, Any]) -> str:
    """Serialise a body like the vendors' client libraries do."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))


def body_check(found: Rebuilt) -> BodyCheck:
    """Compare the rebuilt body with the hash of the request as sent."""
    known = found.receipt.body_sha256
    if found.fault or not known:
        return "unknown"
    return compared(bodies(found, with_images=True), known)


def compared(made: Iterator[str], known: str) -> BodyCheck:
    """Return "same" if one of the rebuilt bodies has the hash of the request as sent, else
    "options".
    """
    return "same" if any(text_ref(text) == known for text in made) else "options"


def as_curl(body: str, *, is_anthropic: bool) -> str:
    """Format a request with this body as a shell command.

    Contains no secrets.

    The body is ASCII on one line, so it cannot contain the here-document's end marker.
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
    """Return True if the call's model is currently served through Anthropic's API."""
    return speaks_anthropic(rebuilt.model_of(found.receipt))


def speaks_anthropic(model: ModelSpec | None) -> bool:
    """Return True if a model is currently served through Anthropic's API."""
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
    """Return a request as a file in one of the `FORMS`. Raises `RequestNotWhole`."""
    if sent.has_hidden or sent.found.fault:
        raise RequestNotWhole
    is_anthropic = _is_anthropic(sent.found)
    return written(body_json(sent.found), form=form, is_anthropic=is_anthropic)


def written(body: str, *, form: str, is_anthropic: bool) -> RequestFile:
    """Return a body as a file in one of the `FORMS`."""
    name, kind = FORMS[form]
    text = as_curl(body, is_anthropic=is_anthropic) if form == "curl" else body
    return RequestFile(name, kind, text)
