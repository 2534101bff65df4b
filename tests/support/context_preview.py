"""Previews of the next context, compared with receipts."""

from dataclasses import asdict
from typing import Any

from chats.models import Receipt
from chats.prompt.next_prompt import Outlook
from chats.providers.base import Finished, TextDelta

QUESTION = "And what about the invoice of 12 May, who pays it in the end?"
FAILED_READING = [TextDelta("No."), Finished("stop")]
REPLY = [TextDelta("Nobody yet."), Finished("stop")]


def describe_outlook(outlook: Outlook) -> dict[str, Any]:
    """Return the outlook in the form of a receipt. The new message has no id yet."""
    sent = outlook.sent
    return {
        "segments": [
            ["" if s.origin == "question" else s.message_id, *s[:1], *s[2:3], *s[4:]]
            for s in sent.segments
        ],
        "left_out": [[out.from_seq, out.to_seq, out.reason] for out in sent.left_out],
        "budget": asdict(sent.budget),
        "prompt_tokens": sent.prompt_tokens,
        "last_seq": outlook.given.last_seq,
    }


def describe_receipt(receipt: Receipt) -> dict[str, Any]:
    """Return the same fields of a receipt."""
    return {
        "segments": [
            ["" if origin == "question" else label, origin, seq, tokens, cut_to, digest, results]
            for origin, label, seq, tokens, cut_to, digest, results in receipt.segments
        ],
        "left_out": receipt.left_out,
        "budget": receipt.budget,
        "prompt_tokens": receipt.prompt_tokens,
        "last_seq": receipt.last_seq,
    }
