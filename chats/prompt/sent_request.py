"""A past request for display: as segments, compared with the previous call, and as files."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import chain, product
from typing import Any, Literal

from django.utils.translation import gettext, gettext_noop

from chats.ground.refusals import Refusal
from chats.models import ProviderAccount, Receipt
from chats.prompt import reconstruction
from chats.prompt.reconstruction import Prefix, Rebuilt
from chats.providers import anthropic_wire, wire
from chats.providers.base import ProviderRequest
from chats.providers.call_ids import ID_FORMS, has_other_ids
from chats.providers.kinds import ANTHROPIC_VERSION
from chats.providers.output_limits import list_lower_limits
from chats.providers.refused_fields import list_removals
from chats.providers.required_fields import FILLS, Fill, list_effective_fills
from contextpolicy.engine.messages.messages import WireMessage
from contextpolicy.engine.messages.segments import Segment, compute_text_ref
from contextpolicy.models import ModelSpec
from contextpolicy.resolution import load_policy_values

Kind = Literal["same", "gone", "new"]
FAULTS = {
    "erased": gettext_noop("This prompt cannot be rebuilt, because part of its text was erased."),
    "missing": gettext_noop(
        "This prompt cannot be rebuilt, because part of its text is no longer stored."
    ),
    "differs": gettext_noop(
        "The prompt rebuilt from stored data differs from the prompt as sent. A message, "
        "other text or the receipt was changed outside the product. Verify the audit log."
    ),
}
BodyCheck = Literal["same", "options", "unknown"]
BODIES: Mapping[BodyCheck, str] = {
    "same": gettext_noop("The request body is identical to the request as sent."),
    "options": gettext_noop(
        "The request as sent had the same prompt but other options, such as the reply limit or "
        "client options. The options have changed since."
    ),
    "unknown": gettext_noop(
        "The request body cannot be compared, because its hash was not stored. The call got no "
        "response, used the demo model, or was made by a version that stored no hashes."
    ),
}
HIDDEN = "[The policy hides this text.]"
END = "PALIMPSEST_END"


class RequestNotWhole(Refusal):
    """Parts of the request are hidden, erased or changed, so it cannot be downloaded."""

    code = "request_not_whole"
    status = 409
    sentence = gettext_noop(
        "This request cannot be downloaded, because part of its text is hidden by the policy, "
        "was erased, or has changed. See the prompt receipt for details."
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
        return sum(segment.tokens for segment in self.segments)

    @property
    def origins(self) -> list[str]:
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
        """A sentence that says whether the rebuilt body equals the request as sent."""
        return gettext(BODIES[self.body])

    @property
    def fault(self) -> str:
        """A sentence that explains why the request differs from the one sent.

        Empty if both are the same.
        """
        return gettext(FAULTS.get(self.found.fault, ""))


def load_sent_request(receipt: Receipt, *, sees_hidden: bool) -> AsSent:
    """Return the request of a call, compared with the previous one on the branch."""
    found = reconstruction.rebuild_request(receipt)
    earlier = reconstruction.find_previous_receipt(receipt)
    before = reconstruction.rebuild_request(earlier) if earlier else None
    hides = not sees_hidden and has_hidden_system(receipt)
    hid = not sees_hidden and earlier is not None and has_hidden_system(earlier)
    lines = [] if found.fault else list(build_sent_lines(found, before, hides=hides or hid))
    return AsSent(
        found,
        lines,
        reconstruction.compare_request_prefix(found, before),
        hides,
        compare_body_hash(found),
    )


def has_hidden_system(receipt: Receipt) -> bool:
    """Return True if the policy hides a system text of this call."""
    values = load_policy_values(receipt.effective_policy)
    kept = (row for row in receipt.segments if row[0] == "system" and row[1] != "chat")
    return values.hide_system_text and any(kept)


def build_sent_lines(found: Rebuilt, before: Rebuilt | None, *, hides: bool) -> Iterator[SentLine]:
    """Yield the messages of a request, in order, with removed messages of the previous call."""
    owners = list_message_segments(found)
    old = before.messages if before and not before.fault else ()
    origin, is_open = reconstruction.request_of(found).origin, wire.open_loop(found.messages)
    for kind, message, place in align_messages(old, found.messages):
        segments = () if place is None else owners[place]
        by = origin if place is not None and place >= is_open else None
        yield SentLine(
            kind, message.role, format_request_message(message, hides=hides, by=by), segments
        )


def align_messages(
    old: Sequence[WireMessage], new: Sequence[WireMessage]
) -> Iterator[tuple[Kind, WireMessage, int | None]]:
    """Yield the messages of two requests in order, with their index in the new one, or None."""
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    for tag, start, end, first, last in matcher.get_opcodes():
        if tag != "equal":
            yield from (("gone", message, None) for message in old[start:end])
        kind: Kind = "same" if tag == "equal" else "new"
        yield from ((kind, new[place], place) for place in range(first, last))


def list_message_segments(found: Rebuilt) -> list[Sequence[Segment]]:
    """Return the segments of each message. A block's segments belong to its first message."""
    owners: list[Sequence[Segment]] = []
    for segments, count in found.pieces:
        if count:
            owners += [segments, *([()] * (count - 1))]
    return owners


def format_request_message(message: WireMessage, *, hides: bool, by: str | None = None) -> str:
    """Format a message of a request, with its tool calls and the fields for the model `by`."""
    if hides and message.role == "system":
        return HIDDEN
    calls = [
        f"{call.name}({wire.clean_call_arguments(call.arguments)})" for call in message.tool_calls
    ]
    own = wire.collect_sent_fields(message, by=by)
    fields = f"[Fields for its server: {json.dumps(own, ensure_ascii=False)}]" if own else ""
    return "\n".join([part for part in (message.shown(by_hash=True), *calls, fields) if part])


def build_body_json(found: Rebuilt) -> str:
    """Return the request body as JSON: the variant that was sent if it is known, else the default.

    Hashes replace images.
    """
    return select_sent_body(build_request_bodies(found), found.receipt.body_sha256)


def select_sent_body(made: Iterator[str], known: str) -> str:
    """Return the rebuilt body with the recorded hash, or the default variant if none has it."""
    default = next(made)
    forms = chain([default], made) if known else ()
    return next((text for text in forms if compute_text_ref(text) == known), default)


def build_request_bodies(found: Rebuilt, *, with_images: bool = False) -> Iterator[str]:
    """Yield each variant of the body that may have been sent, the default first.

    The adapter detects the variant at run time and remembers it only in memory.
    """
    request = reconstruction.request_of(found, with_images=with_images)
    is_anthropic = _is_anthropic(found)
    yield from serialise_request_forms(request, is_anthropic=is_anthropic)
    images = (part.image for message in found.messages for _, part in message.images)
    if not request.takes_images and any(image and image.url for image in images):
        # Earlier versions sent the URLs of images to every model.
        earlier = replace(request, takes_images=True)
        yield from serialise_request_forms(earlier, is_anthropic=is_anthropic)


def serialise_request_forms(request: ProviderRequest, *, is_anthropic: bool) -> Iterator[str]:
    """Yield each variant of a request's body that its server may require, the default first.

    The variants with lower output limits come last, because there are many.
    """
    most = request.max_output_tokens
    if is_anthropic:
        yield serialise_body(anthropic_wire.build_anthropic_body(request))
        for limit in list_lower_limits(most):
            lower = replace(request, max_output_tokens=limit)
            yield serialise_body(anthropic_wire.build_anthropic_body(lower))
        return
    variants = list(list_body_options(request))
    for options in variants:
        yield serialise_body(wire.build_openai_body(request, **options))
    for options in variants:
        if not options["cleans_names"]:
            # The versions that did not clean names did not lower limits either.
            continue
        body = wire.build_openai_body(request, **options)
        for limit in list_lower_limits(most):
            yield serialise_body({**body, options["limit_name"]: limit})


def list_body_options(request: ProviderRequest) -> Iterator[dict[str, Any]]:
    """Yield the options of `build_openai_body` that can change a request, the default ones first.

    An option without effect on the request has only its default.
    """
    usual = wire.build_openai_body(request)
    has_images = wire.has_result_images(usual)
    options: dict[str, Sequence[Any]] = {
        "fills": list_possible_fills(request),
        "id_form": [
            form
            for form in ID_FORMS
            if form == ID_FORMS[0] or has_other_ids(request.messages, form=form)
        ],
        # Earlier versions sent the names of called tools unchanged.
        "cleans_names": (True, False) if wire.has_unclean_names(request) else (True,),
        "takes_result_images": (True, False) if has_images else (True,),
        "limit_name": (
            ("max_tokens", "max_completion_tokens")
            if request.max_output_tokens is not None
            else ("max_tokens",)
        ),
        "takes_usage_option": (True, False) if request.stream else (True,),
        "without": list_removals(usual),
        "takes_original_images": (True, False) if wire.has_original_images(usual) else (True,),
    }
    for values in product(*options.values()):
        yield dict(zip(options, values, strict=True))


def list_possible_fills(request: ProviderRequest) -> list[Sequence[Fill]]:
    """Return the additions that a server may require in a request, none first.

    No known server requires several of them.
    """
    found: set[Fill] = set()
    for in_results in (True, False):
        body = wire.build_openai_body(request, takes_result_images=in_results)
        found.update(list_effective_fills(body["messages"]))
    return [(), *((fill,) for fill in FILLS if fill in found)]


def serialise_body(body: Mapping[str, Any]) -> str:
    """Serialise a body as the vendors' client libraries do."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))


def compare_body_hash(found: Rebuilt) -> BodyCheck:
    known = found.receipt.body_sha256
    if found.fault or not known:
        return "unknown"
    return compare_body_forms(build_request_bodies(found, with_images=True), known)


def compare_body_forms(made: Iterator[str], known: str) -> BodyCheck:
    """Return "same" if one of the rebuilt bodies has the recorded hash.

    Otherwise returns "options": the request as sent had the same prompt but other options.
    """
    return "same" if any(compute_text_ref(text) == known for text in made) else "options"


def format_curl_command(body: str, *, is_anthropic: bool) -> str:
    """Format a request with this body as a shell command. It contains no secrets.

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
    return is_anthropic_model(reconstruction.find_call_model(found.receipt))


def is_anthropic_model(model: ModelSpec | None) -> bool:
    """Return True if a model is currently served through Anthropic's API."""
    of_model = ProviderAccount.objects.filter(slug=model.provider if model else "")
    return of_model.filter(kind=ProviderAccount.Kind.ANTHROPIC).exists()


FORMS = {
    "json": ("request.json", "application/json"),
    "curl": ("request.sh", "text/plain; charset=utf-8"),
}


@dataclass(frozen=True, slots=True)
class RequestFile:
    name: str
    kind: str
    text: str


def build_request_file(sent: AsSent, *, form: str) -> RequestFile:
    """Return a request as a file in one of the `FORMS`. Raises `RequestNotWhole`."""
    if sent.has_hidden or sent.found.fault:
        raise RequestNotWhole
    is_anthropic = _is_anthropic(sent.found)
    return format_request_file(build_body_json(sent.found), form=form, is_anthropic=is_anthropic)


def format_request_file(body: str, *, form: str, is_anthropic: bool) -> RequestFile:
    name, kind = FORMS[form]
    text = format_curl_command(body, is_anthropic=is_anthropic) if form == "curl" else body
    return RequestFile(name, kind, text)
