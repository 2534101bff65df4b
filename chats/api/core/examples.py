"""Request examples in the API documentation."""

from drf_spectacular.utils import OpenApiExample

SUMMARY = """## Facts
- The order 4711 goes to Anna Berg in Bergen [#1, #2]
## Open items
- The price is to be confirmed [#4]
"""


def build_request_example(name: str, **body: object) -> OpenApiExample:
    return OpenApiExample(name, value=body, request_only=True)


COMPACT_NOW = [
    build_request_example("Use the policy's settings"),
    build_request_example("With a focus", focus="the price and the date of delivery"),
    build_request_example("Without a model", model=""),
]
RERUN = [
    build_request_example("With another model", model="summariser"),
    build_request_example("With a focus", focus="the price"),
]
REVISE = [build_request_example("Corrected", text=SUMMARY)]
REJECT = [build_request_example("With a reason", reason="The price is wrong.")]
EDIT = [build_request_example("New text", text="And what does it cost in Bergen?")]
ERASE = [
    build_request_example("Only the message"),
    build_request_example("With messages that quote it", quotes="erase"),
]
