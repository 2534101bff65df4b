"""The ids of tool calls in the formats that servers accept.

A chat keeps the id that the server of a call gave it. After a change of the model, another server
may refuse it: OpenAI above 40 characters, Bedrock with other characters, Mistral and its templates
if it does not have exactly 9 letters and digits. An id is unchanged until a server refuses it,
because some servers read data from the ids that they gave.
"""

import hashlib
import re
from collections.abc import Iterable
from typing import Literal, get_args

from contextpolicy.engine.messages.messages import WireMessage

# As stored; at most 40 characters of a plain alphabet; exactly 9 letters and digits.
IdForm = Literal["stored", "plain", "nine"]
ID_FORMS: tuple[IdForm, ...] = get_args(IdForm)
_FITS = {
    "stored": re.compile(r".*", re.DOTALL),
    "plain": re.compile(r"[a-zA-Z0-9_-]{1,40}"),
    "nine": re.compile(r"[a-zA-Z0-9]{9}"),
}
# Errors about an id: Mistral and the chat templates of its models (llama.cpp, LM Studio, vLLM),
# then OpenAI, Anthropic, and Bedrock.
_NINE = re.compile(r"tool.?call.?ids?\b.{0,200}?length (?:of )?9\b", re.IGNORECASE | re.DOTALL)
_OTHER = re.compile(
    r"tool_calls\W+\d+\W+(?:\.id|id)\b|tool_call_id|tool_use(?:_|\.)id|toolUseId|tool.?call.?id",
    re.IGNORECASE,
)


def format_call_id(call_id: str, *, form: IdForm) -> str:
    """Return the id of a call or a result in a format. The same id always gives the same string."""
    if _FITS[form].fullmatch(call_id):
        return call_id
    digest = hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()
    return digest[:9] if form == "nine" else f"call_{digest[:32]}"


def has_other_ids(messages: Iterable[WireMessage], *, form: IdForm) -> bool:
    """Return True if a format changes the id of a call or of a result."""
    return any(
        format_call_id(call_id, form=form) != call_id
        for message in messages
        for call_id in (*(call.call_id for call in message.tool_calls), message.tool_call_id)
        if call_id
    )


def find_required_form(
    error: str, *, form: IdForm, messages: Iterable[WireMessage]
) -> IdForm | None:
    """Return the format that a server's error asks for.

    None if the error is not about ids, or if this format changes none. `form`: the one that was
    sent.
    """
    needed: IdForm
    if _NINE.search(error):
        needed = "nine"
    elif _OTHER.search(error):
        needed = "plain"
    else:
        return None
    is_new = ID_FORMS.index(needed) > ID_FORMS.index(form)
    return needed if is_new and has_other_ids(messages, form=needed) else None
