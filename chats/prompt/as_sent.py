"""A past request for people: piece by piece, beside the call before it, and as files."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

from chats.models import ProviderAccount, Receipt
from chats.prompt import rebuilt
from chats.prompt.rebuilt import Prefix, Rebuilt
from chats.providers import anthropic_wire, wire
from chats.providers.kinds import ANTHROPIC_VERSION
from contextpolicy.engine.messages import WireMessage
from contextpolicy.engine.segments import Segment
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
HIDDEN = "[The policy hides this text.]"
END = "PALIMPSEST_END"


@dataclass(frozen=True, slots=True)
class Line:
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
    lines: Sequence[Line]
    prefix: Prefix | None
    has_hidden: bool

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
    return AsSent(found, lines, rebuilt.prefix(found, before), hides)


def hides_system(receipt: Receipt) -> bool:
    """Tell whether the policy hides a system text that this call has."""
    values = values_of(receipt.effective_policy)
    kept = (row for row in receipt.segments if row[0] == "system" and row[1] != "chat")
    return values.hide_system_text and any(kept)


def lines_of(found: Rebuilt, before: Rebuilt | None, *, hides: bool) -> Iterator[Line]:
    """Yield the messages of a request, and in their places those that only the one before had."""
    owners = owners_of(found)
    old = before.messages if before and not before.fault else ()
    matcher = SequenceMatcher(None, old, found.messages, autojunk=False)
    for tag, start, end, first, last in matcher.get_opcodes():
        if tag != "equal":
            for wire in old[start:end]:
                yield Line("gone", wire.role, told(wire, hides=hides))
        for place in range(first, last):
            wire = found.messages[place]
            kind: Kind = "same" if tag == "equal" else "new"
            yield Line(kind, wire.role, told(wire, hides=hides), owners[place])


def owners_of(found: Rebuilt) -> list[Sequence[Segment]]:
    """Return for each message of a request the pieces that it is made of; a block's come first."""
    owners: list[Sequence[Segment]] = []
    for segments, count in found.pieces:
        if count:
            owners += [segments, *([()] * (count - 1))]
    return owners


def told(wire: WireMessage, *, hides: bool) -> str:
    """Write a message of a request, with its tool calls."""
    if hides and wire.role == "system":
        return HIDDEN
    calls = [f"{call.name}({call.arguments})" for call in wire.tool_calls]
    return "\n".join([part for part in (wire.shown(by_hash=True), *calls) if part])


def body_json(found: Rebuilt) -> str:
    """Write the body of the request as it goes over the wire."""
    form = anthropic_wire if _is_anthropic(found) else wire
    body = form.body_of(rebuilt.request_of(found))
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))


def as_curl(found: Rebuilt) -> str:
    """Write the request as a command for a shell; no secret is in it.

    The body is ASCII on one line, so no word in it can end it.
    """
    body = json.dumps(json.loads(body_json(found)), separators=(",", ":"))
    path, version = "/chat/completions", ""
    if _is_anthropic(found):
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
    model = rebuilt.model_of(found.receipt)
    of_model = ProviderAccount.objects.filter(slug=model.provider if model else "")
    return of_model.filter(kind=ProviderAccount.Kind.ANTHROPIC).exists()


FORMS = {
    "json": ("request.json", "application/json", body_json),
    "curl": ("request.sh", "text/plain; charset=utf-8", as_curl),
}
