"""Requests of coding agents and chat clients other than plain conversations."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from chats.compaction.maintain import maintain_chat_context
from chats.gateway.matching.conversation import Conversation, Item
from chats.gateway.matching.hashes import hash_messages, normalise_reply
from chats.gateway.matching.side_calls import is_side_call
from chats.models import Branch, Chat, Compaction
from chats.providers.base import Finished, ReasoningDelta, TextDelta
from chats.teams import rosters
from chats.turns.derived_titles import find_first_text
from contextpolicy.engine.messages.messages import TextPart
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.models import ModelSpec
from tests.support.chat_summaries import SetPolicy
from tests.support.gateway_clients import TOOLS, GatewayClient, assistant, system, user
from tests.support.gateway_responses import create_response, parse_response
from tests.support.team_rounds import draft_team

SESSION = {"X-Session-Id": "ses_1"}
TITLE_CALLS = [
    [system("You are a title generator."), user("How do I bake bread?")],
    [user("Generate a title for this conversation:\n"), user("How do I bake bread?")],
    [user("### Task:\nGenerate a concise, 3-5 word title summarizing the chat history.")],
    [system("Analyze this message. Extract isNewTopic and a title."), user("How do I bake bread?")],
    [user("Suggest 3 follow-up questions for this discussion.")],
    [system("Summarize the session as a 10-word title."), user("How do I bake bread?")],
    [user("Provide a short title for the conversation above, in five words or less.")],
    [system("请根据以下对话内容生成一个十字以内的标题。"), user("怎么做面包?")],
    [user("How do I bake bread?"), user("Please reply with a title for the chat, in 3-4 words")],
    [user("Based on the chat history, give this conversation a name.\nNo quotes.")],
    [user('Summarize in a 5-word Title. Give the title only. The message: "How do I bake bread?"')],
    [user("Provide a concise description of this session in 4 words or less.")],
    [system("You are a chat titles assistant."), user("How do I bake bread?")],
    [system("Generate a short title for the text the user sends."), user("How do I bake bread?")],
    [user("I need a short and relevant title for this chat. Answer with only the title.")],
    [user("### Task:\nAnalyze the need for search queries.\n<chat_history>\nHi\n</chat_history>")],
    [user("Suggest a short chat name. Answer with the name only."), user("How do I bake bread?")],
    [user("Write a title of at most 6 words.\n\nHow do I bake bread?")],
    [user("Please generate a short title in up to five words:\nHow do I bake bread?")],
    [user("### Task:\nSuggest 1-3 broad tags.\n### Guidelines:\n- In English\n### Output:\nJSON")],
    [user("Erstelle einen kurzen Titel für dieses Gespräch.")],
    [user("Génère un titre court pour cette conversation.")],
    [user("Придумай короткий заголовок для этого чата.")],
    [user("Fasse diese Unterhaltung in einem Titel mit höchstens fünf Wörtern zusammen.")],
    [user("Gib dieser Konversation einen kurzen Namen.")],
    [user("Résume cette conversation en un titre de cinq mots maximum.")],
    [user("Genereer een korte titel voor dit gesprek.")],
    [user("Wygeneruj krótki tytuł dla tej rozmowy.")],
    [user("Bu konuşma için kısa bir başlık oluştur.")],
    [user("أنشئ عنوانًا قصيرًا لهذه المحادثة.")],
    [user("इस बातचीत के लिए एक छोटा शीर्षक बनाएं।")],
    [user("Suggest a subject line for this chat thread.")],
    [user("Name this chat thread in at most 4 words. Output only the name.")],
    [user("Analyze this conversation and provide:\n1. The language\n2. A concise title")],
]


def test_a_session_whose_chat_got_a_team_gets_another_chat(program: GatewayClient) -> None:
    first = program.ask([user("How do I bake bread?")], headers=SESSION)
    now, owner = timezone.now(), first.chat.owner
    made = rosters.create_team(user=owner, draft=draft_team("Baker"), shared=False, now=now)
    rosters.set_chat_team(user=owner, chat=first.chat, team_id=made.team.pk, now=now)
    said = [user("How do I bake bread?"), assistant(first.text), user("With rye?")]
    second = program.ask(said, headers=SESSION)
    assert second.status == 200
    assert second.chat != first.chat
    assert Branch.objects.filter(chat=first.chat).count() == 1
    third = program.ask([*said, assistant(second.text), user("And?")], headers=SESSION)
    assert third.chat == second.chat


@pytest.mark.parametrize("headers", [{}, SESSION])
def test_a_response_that_looks_like_a_title_call_is_continued_by_its_id(
    program: GatewayClient, headers: dict[str, str]
) -> None:
    said = "Write a short title for a discussion about bees."
    first = parse_response(create_response(program, said, headers=headers))
    second = create_response(
        program, "Shorter please", previous_response_id=first.id, headers=headers
    )
    assert second.headers["X-Context-Decision"] == "continue"
    assert Chat.objects.count() == 1
    other = {"X-Session-Id": "another"}
    refused = create_response(
        program, "Longer please", previous_response_id=first.id, headers={**SESSION, **other}
    )
    assert refused.status == (404 if headers else 200)


@pytest.mark.parametrize("asked", TITLE_CALLS, ids=range(len(TITLE_CALLS)))
def test_a_title_call_does_not_open_the_conversation(
    program: GatewayClient, asked: list[dict[str, Any]]
) -> None:
    side = program.ask(asked, headers=SESSION)
    first = program.ask([user("How do I bake bread?")], headers=SESSION)

    assert first.chat != side.chat
    assert first.chat.title == "How do I bake bread?"
    assert first.headers["X-Context-Decision"] == "new"
    again = [user("How do I bake bread?"), assistant(first.text), user("With rye?")]
    assert program.ask(again, headers=SESSION).chat == first.chat
    # A later title call neither joins nor branches the conversation.
    program.ask(asked, headers=SESSION)
    assert Branch.objects.filter(chat=first.chat).count() == 1


@pytest.mark.parametrize("is_titled", [False, True])
def test_a_request_about_a_conversation_in_other_words_does_not_title_it(
    program: GatewayClient, is_titled: bool
) -> None:
    side = program.ask([user("Four words for a list, please: bread")], headers=SESSION)
    if is_titled:
        Chat.objects.update(title="Chosen by a person")
    asked = [user("<system-reminder>\nBe brief.\n</system-reminder>\nHow do I bake bread?")]
    first = program.ask(asked, headers=SESSION)
    assert first.chat == side.chat
    again = program.ask([*asked, assistant(first.text), user("With rye?")], headers=SESSION)
    assert again.headers["X-Context-Decision"] == "continue"
    assert again.chat.title == ("Chosen by a person" if is_titled else "How do I bake bread?")
    assert again.chat.active_branch == again.turn.branch


def items(*texts: str) -> tuple[Item, ...]:
    """Return user messages."""
    return tuple(Item("user", (TextPart(text),)) for text in texts)


@pytest.mark.parametrize(
    "text",
    [
        "How do I write a title page in LaTeX?",
        "What is the title of the book by Sebald about Austerlitz?",
        "Summarise the French revolution in 100 words",
        "Tag my photos",
        "Give me a title for my article about cats. It has two messages.",
        "帮我的文章起一个标题",
        "Wie finde ich den Titel des Films mit dem Gespräch am Fluss?",
        "Make my message shorter, and keep the title of the book in it",
        "Give me a name for a chat app",
        "### Task:\nTranslate this to French: hello",
        "### Task:\nWrite a title page in LaTeX\n### Output:\nthe code",
        "Write a title of at most 6 words for my essay on bees",
        "Create a title with a pun. It is a talk about chat bots.",
        "Suggest a name for a session on bees at the fair",
        "Schreib einen Chat zwischen zwei Figuren mit dem Titel Nacht",
        "Erstelle einen Titel für den Artikel über Chatbots",
        "Name the threads of this program and give each a label",
        "Analyze this session log:\nerror in page.title",
    ],
)
def test_a_question_with_such_words_is_a_conversation(text: str) -> None:
    assert not is_side_call(Conversation((), items(text)), tools=None)


def test_a_request_with_tools_or_replies_is_a_conversation() -> None:
    said = items("Generate a title for this conversation")
    assert is_side_call(Conversation((), said), tools=())
    assert not is_side_call(Conversation((), said), tools=TOOLS)
    reply = Item("assistant", (TextPart("Bread"),))
    assert not is_side_call(Conversation((), (*said, reply, *said)), tools=None)


@pytest.mark.parametrize(
    ("texts", "first"),
    [
        (["<system-reminder>Be brief.</system-reminder>\nFix the login"], "Fix the login"),
        (["<environment_context>\n<cwd>/x</cwd>\n</environment_context>", "Fix it"], "Fix it"),
        (["Fix it\n<system-reminder>\nToday is\n</system-reminder>"], "Fix it"),
        (
            ["<user_instructions a='1'>x</user_instructions>", "<b>bold</b> text"],
            "<b>bold</b> text",
        ),
        (["<task>\nFix it\n</task>\n<environment_details>x</environment_details>"], "Fix it"),
        (["<more_data>x</more_data>\n<user_query>\nFix it\n</user_query>"], "Fix it"),
        (["<user_query>Fix it</user_query>"], "Fix it"),
        (["<system-reminder>only</system-reminder>"], "<system-reminder>only</system-reminder>"),
        ([], ""),
    ],
)
def test_tagged_parts_are_no_title(texts: list[str], first: str) -> None:
    assert find_first_text(texts) == first


def test_tagged_parts_of_one_message_are_no_title(program: GatewayClient) -> None:
    parts = [
        {"type": "text", "text": "<system-reminder>Be brief.</system-reminder>"},
        {"type": "text", "text": "Fix the login"},
    ]
    assert program.ask([user(parts)]).chat.title == "Fix the login"


def test_a_chat_that_only_a_client_uses_is_not_unread(program: GatewayClient) -> None:
    program.talk(["One", "Two"])
    assert not Chat.objects.get().unread


def test_an_unread_reply_stays_unread_beside_a_client(program: GatewayClient) -> None:
    program.talk(["One"])
    Chat.objects.update(unread=True)
    program.ask([user("One"), assistant("reply 1"), user("Two")])
    assert Chat.objects.get().unread


@pytest.mark.parametrize("path", ["chat/completions", "responses"])
@pytest.mark.parametrize(
    "choice",
    ["auto", "required", "none", {"type": "allowed_tools", "mode": "auto", "tools": []}],
    ids=["auto", "required", "none", "allowed"],
)
@pytest.mark.parametrize("tools", [[], None])
def test_without_tools_their_parameters_are_left_out(
    program: GatewayClient, tools: Any, choice: Any, path: str
) -> None:
    said = {"input": "Hi"} if path == "responses" else {"messages": [user("Hi")]}
    fields = {"tools": tools, "tool_choice": choice, "parallel_tool_calls": True}
    program.work(
        program.open({"model": "demo", **said, **fields}, path=path)["X-Context-Report-Id"]
    )
    (request,) = program.requests
    assert request.tools == ()
    assert not {"tool_choice", "parallel_tool_calls"} & {*request.parameters}


def test_with_tools_their_parameters_are_passed_on(program: GatewayClient) -> None:
    ModelSpec.objects.update(supports_tools=True)
    program.ask([user("Hi")], tools=TOOLS, tool_choice="required", parallel_tool_calls=False)
    (request,) = program.requests
    assert request.parameters["tool_choice"] == "required"
    assert request.parameters["parallel_tool_calls"] is False


@pytest.mark.parametrize("method", ["get", "post", "delete"])
@pytest.mark.parametrize("path", ["edits", "conversations/x/y", "", "models/"])
def test_an_unknown_address_names_those_that_exist(db: None, method: str, path: str) -> None:
    answer = getattr(Client(), method)(f"/v1/{path}")
    assert answer.status_code == 404
    error = answer.json()["error"]
    assert error["code"] == "not_found"
    assert "/v1/chat/completions" in error["message"]


@pytest.mark.parametrize("kind", ["slug", "name", "chat"])
def test_a_model_is_found_by_each_name_that_a_request_may_have(
    program: GatewayClient, chat: Chat, kind: str
) -> None:
    ModelSpec.objects.update(name="acme/demo-1.5@large")
    name = {"slug": "demo", "name": "acme/demo-1.5@large", "chat": f"chat:{chat.pk}"}[kind]
    client = Client(headers={"Authorization": f"Bearer {program.secret}"})
    answer = client.get(f"/v1/models/{name}")
    assert (answer.status_code, answer.json()["id"]) == (200, name)
    assert answer.json()["context_window"] > 0
    missing = client.get("/v1/models/none")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")


THINKING = (ReasoningDelta("Flour, water."), TextDelta("Bread."), Finished("stop"))


def test_thoughts_are_passed_on(program: GatewayClient) -> None:
    whole = program.ask([user("What?")], *THINKING)
    message = whole.json["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == ("Bread.", "Flour, water.")

    streamed = program.ask([user("What else?")], *THINKING, stream=True)
    deltas = [chunk["choices"][0]["delta"] for chunk in streamed.chunks if chunk["choices"]]
    assert [d["reasoning_content"] for d in deltas if "reasoning_content" in d] == ["Flour, water."]
    plain = program.ask([user("And?")])
    assert "reasoning_content" not in plain.json["choices"][0]["message"]


def test_thoughts_are_passed_on_in_responses(program: GatewayClient) -> None:
    response = program.open({"model": "demo", "input": "What?"}, path="responses")
    program.work(response["X-Context-Report-Id"], *THINKING)
    output = program.close(response).json["output"]
    (thought,) = [item for item in output if item["type"] == "reasoning"]
    assert thought["summary"] == [{"type": "summary_text", "text": "Flour, water."}]
    assert thought["encrypted_content"] is None


def test_pending_is_reported_only_if_a_summary_can_follow(
    program: GatewayClient, set_policy: SetPolicy
) -> None:
    set_policy(token_budget=2000, reserve_tokens=300)
    long = "The ferry of 3 May 2026 brings Anna Berg to Oslo with two crates. " * 8
    said = program.talk([f"Question {number}. {long}" for number in range(16)])
    waiting = program.ask([*said, user("Go on")])
    assert waiting.headers["X-Context-Status"] == "pending"

    Branch.objects.update(compaction_paused=True)
    said += [user("Go on"), assistant(waiting.text)]
    assert program.ask([*said, user("Then?")]).headers["X-Context-Status"] == "windowed"


def remind(program: GatewayClient, texts: list[str], reminder: str, **more: Any) -> list[Any]:
    """Talk as a client that appends a reminder only to its newest message."""
    said: list[dict[str, Any]] = []
    answers = []
    for text in texts:
        answers.append(program.ask([*said, user(f"{text}{reminder}")], **more))
        said += [user(text), assistant(answers[-1].text)]
    return answers


@pytest.mark.parametrize("headers", [{}, SESSION], ids=["unnamed", "named"])
@pytest.mark.parametrize(
    "reminder",
    ["\n\nReply in English.", "\n# *SEARCH/REPLACE* rules:\n1. x", " /no_think", "(请用中文回答)"],
)
def test_a_reminder_on_the_newest_message_keeps_one_conversation(
    program: GatewayClient, headers: dict[str, str], reminder: str
) -> None:
    texts = [f"Question {number}" for number in range(4)]
    answers = remind(program, texts, reminder, headers=headers)

    assert [each.headers["X-Context-Decision"] for each in answers] == ["new", *["continue"] * 3]
    assert len({each.chat.pk for each in answers}) == 1
    assert Branch.objects.count() == 1
    assert not answers[0].chat.is_provisional
    assert len(program.prompt) == 7


@pytest.mark.parametrize("reminder", ["\n\nBe brief.", " Be brief."])
def test_a_conversation_with_reminders_gets_summaries(
    program: GatewayClient, set_policy: SetPolicy, reminder: str
) -> None:
    set_policy(token_budget=2000, reserve_tokens=300)
    long = "The ferry of 3 May 2026 brings Anna Berg to Oslo with two crates. " * 8
    answers = remind(program, [f"{number}. {long}" for number in range(14)], reminder)
    maintain_chat_context(
        chat_id=answers[-1].chat.pk, counter=ApproximateCounter(), now=timezone.now()
    )
    assert Compaction.objects.filter(kind="summary", status="published").exists()


BRIEF = "<system-reminder>\nBe brief.\n</system-reminder>"


def with_part(text: str, number: int) -> Any:
    """Return a message with a reminder in a separate part."""
    return [{"type": "text", "text": text}, {"type": "text", "text": BRIEF}]


def with_time(text: str, number: int) -> str:
    """Return a message with a block that differs each time."""
    return f"{text}\n\n<environment_details>\nTime: 12:{number}\n</environment_details>"


@pytest.mark.parametrize(
    "newest",
    [
        with_part,
        with_time,
        lambda text, _: f"{BRIEF}\n{text}",
        lambda text, _: with_part(BRIEF, 0)[:1] + with_part(text, 0)[:1],
        lambda text, _: f"[mode: chat] {text}",
        lambda text, _: f"请简短回答。{text}",
        lambda text, number: f"[12:0{number}] {text}",
        lambda text, number: f"{text} (It is 12:{number + 9}.)",
        lambda text, number: f"[12:0{number}] {text} Be brief.",
    ],
    ids=[
        "part",
        "changing",
        "before",
        "part-before",
        "same-line-before",
        "chinese-before",
        "time-before",
        "time-after",
        "around",
    ],
)
@pytest.mark.parametrize("headers", [{}, SESSION], ids=["unnamed", "named"])
def test_a_reminder_in_any_place_keeps_one_conversation(
    program: GatewayClient, newest: Callable[[str, int], Any], headers: dict[str, str]
) -> None:
    said: list[dict[str, Any]] = []
    decisions = []
    for number in range(3):
        question = user(newest(f"Question {number}", number))
        answer = program.ask([*said, question], headers=headers)
        decisions.append(answer.headers["X-Context-Decision"])
        # Later without it, in the usual form of a content.
        said += [user(f"Question {number}"), assistant(answer.text)]
    assert decisions == ["new", "continue", "continue"]
    assert Branch.objects.count() == 1


DAYS = ["Monday, 3 March", "Tuesday, 14 April", "Sunday, 1 June"]
FILES = ["a.py", "src/main.rs, b.py", "none"]
STATES = ["The cursor is in a.py", "Selection: run()", "Nothing"]
RULES = ["Be brief.", "Use metric units!", "Write Markdown"]
CHANGED_REMINDERS: dict[str, Callable[[str, int], str]] = {
    "date": lambda text, n: f"{text}\n\nToday is {DAYS[n]}.",
    "label": lambda text, n: f"{text}\n\nOpen files: {FILES[n]}",
    "same-line-break": lambda text, n: f"{text}\nOpen files: {FILES[n]}",
    "heading": lambda text, n: f"{text}\n\n# Editor state\n{STATES[n]}\n",
    "brackets": lambda text, n: f"{text} [{DAYS[n]}, 12:0{n}]",
    "brackets-label": lambda text, n: f"{text} (files: {FILES[n]})",
    "chinese-brackets": lambda text, n: f"{text}\uff08\u73b0\u5728\uff1a{FILES[n]}\uff09",
    "before": lambda text, n: f"[{DAYS[n]}] {text}",
    "before-lines": lambda text, n: f"Open files: {FILES[n]}\n\n{text}",
    "both": lambda text, n: f"[{DAYS[n]}] {text}\n\nOpen files: {FILES[n]}",
}


def with_other_words(text: str, number: int) -> str:
    """Return a message with a reminder that has nothing in common with the others."""
    return f"{text}\n\n{RULES[number]}"


@pytest.mark.parametrize("kind", CHANGED_REMINDERS)
@pytest.mark.parametrize("headers", [{}, SESSION], ids=["unnamed", "named"])
def test_a_reminder_whose_words_change_keeps_one_conversation(
    program: GatewayClient, kind: str, headers: dict[str, str]
) -> None:
    said: list[dict[str, Any]] = []
    decisions = []
    for number in range(3):
        question = user(CHANGED_REMINDERS[kind](f"Question {number}", number))
        answer = program.ask([*said, question], headers=headers)
        decisions.append(answer.headers["X-Context-Decision"])
        said += [user(f"Question {number}"), assistant(answer.text)]
    assert decisions == ["new", "continue", "continue"]
    assert Branch.objects.count() == 1


@pytest.mark.parametrize(
    "kind", [*(kind for kind in CHANGED_REMINDERS if kind != "both"), "other-words"]
)
@pytest.mark.parametrize("headers", [{}, SESSION], ids=["unnamed", "named"])
def test_a_new_reminder_on_every_message_keeps_one_conversation(
    program: GatewayClient, kind: str, headers: dict[str, str]
) -> None:
    reminded = {**CHANGED_REMINDERS, "other-words": with_other_words}[kind]
    replies: list[str] = []
    decisions = []
    for number in range(3):
        said = []
        for place, reply in enumerate(replies):
            said += [user(reminded(f"Question {place}", number)), assistant(reply)]
        said.append(user(reminded(f"Question {number}", number)))
        answer = program.ask(said, headers=headers)
        decisions.append(answer.headers["X-Context-Decision"])
        replies.append(answer.text)
    assert decisions == ["new", "continue", "continue"]
    assert Branch.objects.count() == 1


def test_a_reminder_that_a_client_begins_to_add_keeps_one_conversation(
    program: GatewayClient,
) -> None:
    first = program.ask([user("One")])
    said = [user("One\n\nBe brief."), assistant(first.text), user("Two\n\nBe brief.")]
    again = program.ask(said)
    assert (again.chat, again.headers["X-Context-Decision"]) == (first.chat, "continue")


@pytest.mark.parametrize("space", ["\n\n", " "])
@pytest.mark.parametrize(
    ("headers", "second"), [({}, "new"), (SESSION, "branch")], ids=["unnamed", "named"]
)
def test_a_client_that_drops_other_words_each_time_keeps_one_conversation(
    program: GatewayClient, set_policy: SetPolicy, headers: dict[str, str], second: str, space: str
) -> None:
    set_policy(token_budget=2000, reserve_tokens=300)
    long = "The ferry of 3 May 2026 brings Anna Berg to Oslo with two crates. " * 8
    said: list[dict[str, Any]] = []
    decisions = []
    for number in range(14):
        question = f"{number}. {long}"
        # The first words of each addition differ, so only the habit shows that it is one.
        added = f"{'abcdefghijklmn'[number] * 5} {RULES[number % 3]}"
        answer = program.ask([*said, user(f"{question.strip()}{space}{added}")], headers=headers)
        decisions.append(answer.headers["X-Context-Decision"])
        said += [user(question.strip()), assistant(answer.text)]
    # The second request looks like that of a person who edited the first question.
    assert decisions == ["new", second, *["continue"] * 12]
    maintain_chat_context(chat_id=answer.chat.pk, counter=ApproximateCounter(), now=timezone.now())
    assert Compaction.objects.filter(kind="summary", status="published").exists()


def test_two_questions_that_a_person_shortens_are_others(program: GatewayClient) -> None:
    said = program.talk(["One\n\nMy code is 12.", "Two\n\nIt was for Anna."])
    said[0], said[2] = user("One"), user("Two")
    answer = program.ask([*said, user("Three")])
    assert answer.headers["X-Context-Decision"] == "new"
    assert "code" not in str(program.prompt)
    assert "Anna" not in str(program.prompt)


def test_a_reminder_of_another_end_user_is_not_joined(program: GatewayClient) -> None:
    asked = CHANGED_REMINDERS["date"]
    first = program.ask([user(asked("One", 0))], user="ann")
    said = [user("One"), assistant(first.text), user(asked("Two", 1))]
    assert program.ask(said, user="ben").chat != first.chat
    assert program.ask(said, user="ann").chat == first.chat


AROUND_A_BLOCK = [
    ("\n", "\n", "\n"),
    ("\n\n", "\n\n", "\n\n"),
    (" ", " ", " "),
    ("\n", "\n\n", "\n"),
]


@pytest.mark.parametrize(("before", "after", "without"), AROUND_A_BLOCK)
@pytest.mark.parametrize("headers", [{}, SESSION], ids=["unnamed", "named"])
def test_a_block_within_the_newest_message_keeps_one_conversation(
    program: GatewayClient, headers: dict[str, str], before: str, after: str, without: str
) -> None:
    said: list[dict[str, Any]] = []
    for number in range(3):
        words = f"Question {number}", "and its second half"
        answer = program.ask([*said, user(f"{before}{BRIEF}{after}".join(words))], headers=headers)
        said += [user(without.join(words)), assistant(answer.text)]
    assert answer.headers["X-Context-Decision"] == "continue"
    assert (Chat.objects.count(), Branch.objects.count()) == (1, 1)


@pytest.mark.parametrize("has_block", [False, True])
def test_parts_that_become_one_text_keep_one_conversation(
    program: GatewayClient, has_block: bool
) -> None:
    texts = ["One", *([BRIEF] if has_block else []), "and its second half"]
    first = program.ask([user([{"type": "text", "text": text} for text in texts])])
    said = [user("One\n\nand its second half"), assistant(first.text), user("Two")]
    assert program.ask(said).headers["X-Context-Decision"] == "continue"


def test_other_spaces_without_a_block_are_another_message(program: GatewayClient) -> None:
    first = program.ask([user("if x:\n    a\n    b")])
    said = [user("if x:\n    a\nb"), assistant(first.text), user("And now?")]
    assert program.ask(said).headers["X-Context-Decision"] == "new"


def test_a_tagged_block_does_not_hide_another_question(program: GatewayClient) -> None:
    first = program.ask([user(f"One\n{BRIEF}")])
    said = [user(f"Two\n{BRIEF}"), assistant(first.text), user("And now?")]
    assert program.ask(said).headers["X-Context-Decision"] == "new"
    asked = [f"Repository x\n<user_query>{word}</user_query>" for word in ("One", "Two")]
    first = program.ask([user(asked[0])])
    said = [user(asked[1]), assistant(first.text), user("And now?")]
    assert program.ask(said).headers["X-Context-Decision"] == "new"


@pytest.mark.parametrize("text", ["<a-b>" * 20_000, "<a-b>x</a-c>" * 10_000, "<think>" * 20_000])
def test_tags_that_are_never_closed_cost_little(text: str) -> None:
    begun = time.process_time()
    find_first_text([text])
    hash_messages(items(text), room="")
    normalise_reply((TextPart(text),))
    assert time.process_time() - begun < 2


def test_a_message_that_a_person_shortens_is_another_one(program: GatewayClient) -> None:
    text = "My question\n\nThe password is 1234."
    first = program.ask([user(text)])
    said = [user("My question"), assistant(first.text), user("And now?")]
    assert program.ask(said).headers["X-Context-Decision"] == "new"
    # A reminder does not make a different question match.
    reminded = remind(program, ["One"], "\n\nBe brief.")
    said = [user("On"), assistant(reminded[0].text), user("Two\n\nBe brief.")]
    assert program.ask(said).headers["X-Context-Decision"] == "new"


@pytest.mark.parametrize("headers", [{}, SESSION], ids=["unnamed", "named"])
@pytest.mark.parametrize(
    ("first", "later", "newest"),
    [
        # The newest message has no such addition.
        ("My password is 1234. Help me.", "Help me.", "And now?"),
        ("Help me. It is 1234.", "Help me.", "And now?"),
        # It has another one, or only a short word that a person may write twice.
        ("Help me in Paris by 12:30", "Help me", "And now? In Rome by 12:30"),
        ("Say it now", "Say it", "And again now"),
        # It has another addition in separate lines or brackets.
        ("Help me\n\nThe code is 12.", "Help me", "And now?\n\nThe next question is easy"),
        ("Help me.\nMy code is 12.", "Help me.", "And now?\nMy brother lives in Rome"),
        ("Help me (it is 1234)", "Help me", "And now (in English)"),
        ("Help me [code 12]", "Help me", "And now [very quickly]"),
        ("Help me\n\nhttps://a.example", "Help me", "And now?\n\nhttps://b.test/c/d"),
        ("My code is 12.\n\nHelp me", "Help me", "My question is easy.\n\nAnd now?"),
        ("Help me\nin Paris", "Help me\nin Rome", "And now?\nin Rome"),
        ("Help me\n\nMy code is 12.\n\nAnn", "Help me\n\nAnn", "And now?\n\nAnn"),
        # It is part of a word.
        ("One hundred", "One hun", "Two hundred"),
        # The words between the additions differ.
        ("[mode: chat] One", "[mode: chat] Two", "[mode: chat] Three"),
        ("Add 5 and 6 [mode: chat]", "Add 5 and 7", "Three [mode: chat]"),
    ],
)
def test_an_edited_message_is_another_one(
    program: GatewayClient, headers: dict[str, str], first: str, later: str, newest: str
) -> None:
    answer = program.ask([user(first)], headers=headers)
    said = [user(later), assistant(answer.text), user(newest)]
    again = program.ask(said, headers=headers)
    assert again.headers["X-Context-Decision"] == ("branch" if headers else "new")
    assert [text for _, text in program.prompt if _ == "user"] == [later, newest]


def test_a_reminder_does_not_excuse_another_reply(program: GatewayClient) -> None:
    program.ask([user("One Be brief.")])
    said = [user("One"), assistant("Not what we replied"), user("Two Be brief.")]
    assert program.ask(said).headers["X-Context-Decision"] == "new"
    assert [text for _, text in program.prompt] == ["One", "Not what we replied", "Two Be brief."]


def test_a_conversation_of_another_client_id_is_not_joined(program: GatewayClient) -> None:
    first = program.ask([user("One Be brief.")], headers={"X-Session-Id": "ses_2"})
    said = [user("One"), assistant(first.text), user("Two Be brief.")]
    assert program.ask(said, headers=SESSION).chat != first.chat


def test_the_chat_with_the_reminded_words_is_found_among_those_with_the_same_start(
    program: GatewayClient,
) -> None:
    program.ask([user("Hello")])
    first = program.ask([user("Hello Be brief.")])
    said = [user("Hello"), assistant(first.text), user("Two Be brief.")]
    again = program.ask(said)
    assert (again.chat, again.headers["X-Context-Decision"]) == (first.chat, "continue")
