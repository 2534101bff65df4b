"""Team messages: stored fields, ids, and error messages."""

import logging

import pytest

from contextpolicy.engine.team.team import InvalidTeamMessage, Speaker, TeamMessage
from contextpolicy.engine.team.team_state import TeamState
from tests.engine.team_builders import said, team


@pytest.mark.requirement("S3.1")
def test_add_message_stores_and_returns_message_with_generated_id() -> None:
    state = TeamState()
    stored = state.add_message(said("Hi", by="ann", to=("max",), id="mine"))
    assert stored == TeamMessage("msg-1", "Hi", Speaker("ann", "Ann", "human"), ("max",))
    assert state.messages() == [stored]
    assert state.add_message(said("Ho")).id == "msg-2"


@pytest.mark.requirement("S3.2")
def test_add_message_throws_on_null_message() -> None:
    with pytest.raises(TypeError, match=r"^Message cannot be null or undefined$"):
        TeamState().add_message(None)


@pytest.mark.requirement("S3.2")
@pytest.mark.parametrize(
    "message",
    [said(123), said(None), {"speaker": {"roleId": "a"}}, {}, [], "Hi", 5],
    ids=["number", "null", "missing", "empty", "list", "text", "a_number_alone"],
)
def test_add_message_throws_on_non_string_content(message: object) -> None:
    with pytest.raises(TypeError, match=r"^Message content must be a string$"):
        TeamState().add_message(message)


@pytest.mark.requirement("S3.2")
@pytest.mark.parametrize("speaker", [None, "", 0], ids=["null", "empty", "zero"])
def test_add_message_throws_on_missing_speaker(speaker: object) -> None:
    with pytest.raises(TypeError, match=r"^Message speaker is required$"):
        TeamState().add_message({"content": "Hi", "speaker": speaker})
    with pytest.raises(TypeError, match=r"^Message speaker is required$"):
        TeamState().add_message({"content": "Hi"})


@pytest.mark.requirement("S3.2")
@pytest.mark.parametrize(
    "speaker",
    [{}, {"roleId": ""}, {"roleId": None}, {"roleId": 7}, "ann"],
    ids=["none", "empty", "null", "number", "a_name_alone"],
)
def test_add_message_throws_on_missing_speaker_role_id(speaker: object) -> None:
    with pytest.raises(TypeError, match=r"^Message speaker\.roleId is required$"):
        TeamState().add_message({"content": "Hi", "speaker": speaker})


@pytest.mark.requirement("S3.2")
@pytest.mark.parametrize(
    ("message", "code"),
    [
        (None, "message_required"),
        ({"content": 1, "speaker": None}, "content_not_text"),
        ({"content": "Hi", "speaker": None}, "speaker_required"),
        ({"content": "Hi", "speaker": {}}, "role_id_required"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_first_fault_in_order_is_named_by_its_code(message: object, code: str) -> None:
    with pytest.raises(InvalidTeamMessage) as refusal:
        TeamState().add_message(message)
    assert refusal.value.code == code


@pytest.mark.requirement("S3.2")
def test_a_refused_message_takes_no_id_and_calls_no_hook() -> None:
    told: list[TeamMessage] = []
    state = TeamState(on_message_added=told.append)
    with pytest.raises(TypeError):
        state.add_message({"content": "Hi"})
    assert told == []
    assert state.add_message(said("Hi")).id == "msg-1"


@pytest.mark.requirement("S3.2")
def test_an_empty_text_is_a_message() -> None:
    assert TeamState().add_message(said("")).content == ""


@pytest.mark.requirement("S3.1")
def test_a_speaker_without_name_and_type_is_a_person_called_by_the_role_id() -> None:
    stored = TeamState().add_message({"content": "Hi", "speaker": {"roleId": "ann"}})
    assert stored.speaker == Speaker("ann", "ann", "human")


@pytest.mark.requirement("S3.1")
@pytest.mark.parametrize("routing", [None, "max", {}, {"resolvedAddressees": "max"}], ids=str)
def test_a_routing_without_a_list_of_names_goes_to_all(routing: object) -> None:
    assert TeamState().add_message(said("Hi", routing=routing)).addressees == ()


def test_add_message_calls_on_message_added_hook() -> None:
    told: list[TeamMessage] = []
    state = TeamState(on_message_added=told.append)
    stored = state.add_message(said("Hi"))
    assert told == [stored]


@pytest.mark.requirement("S3.13")
def test_a_failing_hook_undoes_nothing_and_is_logged_without_its_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(message: TeamMessage) -> None:
        raise RuntimeError(message.content)

    state = TeamState(on_message_added=fail)
    stored = state.add_message(said("a secret"))
    assert state.messages() == [stored]
    assert "A hook failed: RuntimeError" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.requirement("S3.13")
def test_a_stored_message_is_logged_by_its_id_alone(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="contextpolicy.engine"):
        team("a secret")
    assert "[ContextManager] Message added: msg-1" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.requirement("S3.1")
def test_get_messages_returns_shallow_copy() -> None:
    state = team("one", "two")
    state.messages().clear()
    assert [message.content for message in state.messages()] == ["one", "two"]
    assert state.messages()[0] is state.messages()[0]


@pytest.mark.requirement("S3.1")
def test_get_messages_returns_empty_array_initially() -> None:
    assert TeamState().messages() == []


@pytest.mark.requirement("S3.1")
def test_get_latest_message_returns_null_when_empty() -> None:
    assert TeamState().find_latest_message() is None


@pytest.mark.requirement("S3.1")
def test_get_latest_message_returns_last_message() -> None:
    latest = team("one", "two").find_latest_message()
    assert latest is not None
    assert latest.content == "two"
