"""The documentation's examples, one for each body that is not self-explanatory."""

from drf_spectacular.utils import OpenApiExample

SUMMARY = """## Facts
- The order 4711 goes to Anna Berg in Bergen [#1, #2]
## Open items
- The price is to be confirmed [#4]
"""


def sent(name: str, **body: object) -> OpenApiExample:
    """Make an example of a request's body."""
    return OpenApiExample(name, value=body, request_only=True)


COMPACT_NOW = [
    sent("As the policy says"),
    sent("With a focus", focus="the price and the date of delivery"),
    sent("Without a model", model=""),
]
RERUN = [sent("By another model", model="summariser"), sent("With a focus", focus="the price")]
REVISE = [sent("Corrected", text=SUMMARY)]
REJECT = [sent("With a reason", reason="The price is wrong.")]
EDIT = [sent("In other words", text="And what does it cost in Bergen?")]
ERASE = [sent("The message alone"), sent("With what quotes it", quotes="erase")]
