"""Request examples in the API documentation."""

from drf_spectacular.utils import OpenApiExample

SUMMARY = """## Facts
- The order 4711 goes to Anna Berg in Bergen [#1, #2]
## Open items
- The price is to be confirmed [#4]
"""


def sent(name: str, **body: object) -> OpenApiExample:
    """Return an example of a request body."""
    return OpenApiExample(name, value=body, request_only=True)


COMPACT_NOW = [
    sent("Use the policy's settings"),
    sent("With a focus", focus="the price and the date of delivery"),
    sent("Without a model", model=""),
]
RERUN = [sent("With another model", model="summariser"), sent("With a focus", focus="the price")]
REVISE = [sent("Corrected", text=SUMMARY)]
REJECT = [sent("With a reason", reason="The price is wrong.")]
EDIT = [sent("New text", text="And what does it cost in Bergen?")]
ERASE = [sent("Only the message"), sent("With messages that quote it", quotes="erase")]
