"""`docs/openapi.yaml` equals the generated schema, so API changes appear in diffs."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from drf_spectacular.renderers import OpenApiYamlRenderer

from chats.api.operation_refusals import OPERATIONS
from chats.compaction.report.skip_reasons import SENTENCES
from chats.models import Compaction, Round
from tests.chats.api.listed_refusals import is_listed
from tests.support.api_schema import describe_api
from tests.support.repository import ROOT


def test_the_file_is_what_the_endpoints_say() -> None:
    schema = describe_api()
    renderer: Any = OpenApiYamlRenderer()
    written = renderer.render(schema, renderer_context={})
    kept = (ROOT / "docs" / "openapi.yaml").read_bytes()
    # No line-by-line output, because it is long. Use `make schema` and `git diff`.
    is_same = kept == written
    assert is_same, "docs/openapi.yaml is behind the endpoints: make schema"


# Verbs with which a summary may start.
VERBS = re.compile(
    "Add|Approve|Assign|Branch|Cancel|Check|Choose|Clear|Compact|Compare|Continue|Copy|Correct|"
    "Count|Create|Delete|Download|Edit|End|Erase|Exclude|Explain|Export|Follow|Get|Grant|Import|"
    "Include|Keep|List|Open|Pin|Place|Preview|Publish|Read|Redeliver|Redo|Refuse|Regenerate|"
    "Reject|Release|Remove|Replace|Restore|Resume|Retry|Review|Revise|Revoke|Search|Send|Set|"
    "Start|Stop|Try|Undo|Unpin|Update|Upload"
)
JARGON = re.compile(r"_|\b(one's|in force|radii|wish|fold)\b|\d{3}")


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    """The generated schema."""
    return describe_api()


def parts_of(part: Any) -> Iterator[dict[str, Any]]:
    """Yield every object of a schema."""
    if isinstance(part, dict):
        yield part
    for inner in part.values() if isinstance(part, dict) else part:
        if isinstance(inner, dict | list):
            yield from parts_of(inner)


def test_every_operation_has_a_plain_summary_of_its_own(schema: dict[str, Any]) -> None:
    operations = [each for path in schema["paths"].values() for each in path.values()]
    said = {each["operationId"]: each.get("summary", "") for each in operations}
    wrong = {
        name: summary
        for name, summary in said.items()
        if not VERBS.fullmatch(summary.partition(" ")[0])
        or not 2 <= len(summary.split()) <= 8
        or summary.endswith(".")
        or JARGON.search(summary)
    }
    assert not wrong
    assert [each for each, count in Counter(said.values()).items() if count > 1] == []


def test_the_schema_keeps_what_linters_ask_for(schema: dict[str, Any]) -> None:
    assert schema["servers"]
    for part in parts_of(schema):
        # Redocly: nullable-type-sibling.
        assert part.get("nullable") is not True or "type" in part, part
        # Spectral: oas3-valid-schema-example and oas3-schema.
        default = part.get("default")
        if isinstance(default, str):
            assert len(default) >= part.get("minLength", 0), part
            assert "enum" not in part or default in part["enum"], part


def test_no_description_names_a_python_exception(schema: dict[str, Any]) -> None:
    operations = [each for path in schema["paths"].values() for each in path.values()]
    described = {each["operationId"]: each.get("description", "") for each in operations}
    assert [name for name, text in described.items() if re.search(r"\bRaises\b", text)] == []
    assert [name for name, text in described.items() if not text] == []


def test_a_refusal_that_is_not_listed_is_found() -> None:
    assert is_listed(method="POST", route="api/v1/folders", status=409, code="folder_exists")
    assert not is_listed(method="POST", route="api/v1/folders", status=409, code="chat_full")
    assert not is_listed(method="POST", route="api/v1/folders", status=418, code="folder_exists")


def test_each_entry_of_the_table_is_an_operation(schema: dict[str, Any]) -> None:
    operations = [each for path in schema["paths"].values() for each in path.values()]

    assert OPERATIONS.keys() <= {each["operationId"] for each in operations}


def test_the_schema_explains_each_status_of_a_compaction_and_of_a_round(
    schema: dict[str, Any],
) -> None:
    schemas = schema["components"]["schemas"]
    explained = {
        name: re.findall(r"^- `(\w+)`: \w", schemas[name]["properties"][field]["description"], re.M)
        for name, field in [
            ("CompactionOut", "status"),
            ("RoundOut", "status"),
            ("SkipReasonOut", "code"),
        ]
    }

    assert sorted(explained["CompactionOut"]) == sorted(Compaction.Status.values)
    assert sorted(explained["RoundOut"]) == sorted(Round.Status.values)
    assert explained["SkipReasonOut"] == list(SENTENCES)


def test_each_condition_of_a_code_has_its_own_line(schema: dict[str, Any]) -> None:
    described = responses_of(schema, "chats_messages_regenerate")["409"]["description"]

    assert len(re.findall(r"^- `message_erased`: ", described, re.M)) == 2


def responses_of(schema: dict[str, Any], operation_id: str) -> dict[str, Any]:
    """Return the responses of an operation."""
    operations = [each for path in schema["paths"].values() for each in path.values()]
    found: dict[str, Any] = next(
        each["responses"] for each in operations if each["operationId"] == operation_id
    )
    return found


def test_every_refusal_has_a_code(schema: dict[str, Any]) -> None:
    operations = [each for path in schema["paths"].values() for each in path.values()]
    vague = [
        (each["operationId"], status)
        for each in operations
        for status, response in each["responses"].items()
        if status >= "400" and not re.match(r"(- )?`\w+`: ", response["description"])
    ]

    assert vague == []


def test_an_operation_without_a_stream_lists_no_refusal_of_streams(schema: dict[str, Any]) -> None:
    described = responses_of(schema, "chats_turns_get")["429"]["description"]

    assert "too_many_streams" not in described
    followed = responses_of(schema, "chats_turns_events")["429"]["description"]
    assert "too_many_streams" in followed
    # The stream does not count requests.
    assert "rate_limit_exceeded" not in followed


def test_a_field_can_be_missing_only_if_it_is_required(schema: dict[str, Any]) -> None:
    assert "missing_field" in responses_of(schema, "folders_create")["400"]["description"]
    assert "missing_field" not in responses_of(schema, "audit_export")["400"]["description"]
    # Required inside a list: the name of each inline file.
    assert "missing_field" in responses_of(schema, "chats_create")["400"]["description"]


def test_the_body_of_a_patch_states_its_required_fields(schema: dict[str, Any]) -> None:
    assert schema["components"]["schemas"]["PatchedStateChange"]["required"] == ["version"]


def test_an_upload_of_another_type_is_refused_for_its_content(schema: dict[str, Any]) -> None:
    assert "415" not in responses_of(schema, "files_upload")
    assert "form" in responses_of(schema, "imports_create")["415"]["description"]
