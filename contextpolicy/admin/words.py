"""Describes a policy in plain words."""

from contextpolicy.engine.budget import compact_mark, low_mark, prepare_mark, prompt_limit
from contextpolicy.engine.policy import PolicyValues

STRATEGY_NAMES = {
    "simple": "Newest messages, counted",
    "sliding_window": "Newest messages, as many as fit",
    "dynamic_summary": "Newest messages and a summary of the rest",
    "entity_state": "A state instead of the dialogue",
}
LAYOUTS = {
    "multi_turn": "Each message in its own role",
    "A": "A: history as text and the question in one message",
    "B": "B: history as text in a message before the question",
    "C": "C: as A, with both system texts",
}
CHAT_SYSTEMS = {
    "layout": "As the layout does: A replaces the policy's text by it, the others append it",
    "append": "It stands behind the policy's text",
    "replace": "It stands in place of the policy's text",
    "ignore": "It is not sent",
}
RIGHTS = {
    "owner": "The chat's owner",
    "admins": "Policy administrators",
    "nobody": "Nobody",
}
REFERENCE_SCOPES = {
    "chat": "What left this chat's prompt",
    "folder": "Chats of the same folder; without a folder, the person's chats in no folder",
    "person": "All chats of the person",
}
UNMANAGED = {
    "none": "None",
    "keys": "Those of keys that are set so",
    "asked": "Those of such keys, and those that ask for it",
    "all": "All",
}
APPROVALS = {
    "nobody": "Nobody: it is used when it is ready",
    "owner": "The chat's owner",
    "admins": "A policy administrator",
}
KIND_NAMES = {
    "url": "Addresses (URLs)",
    "date": "Dates and times",
    "identifier": "Identifiers, paths and e-mail addresses",
    "number": "Numbers",
    "name": "Names",
}


def plain_words(values: PolicyValues) -> str:
    """Describe what these values do, in a few sentences with their numbers."""
    limit = prompt_limit(values, model_window=None)
    describe = {
        "simple": _simple,
        "sliding_window": _sliding,
        "dynamic_summary": _summary,
        "entity_state": _state,
    }
    sentences = [
        f"Sends at most {limit:,} tokens and keeps {values.reserve_tokens:,} free for the reply.",
        *describe.get(values.strategy, _other)(values, limit),
        *_ceilings(values),
        *_cuts(values),
        *_layout(values),
        *_rights(values),
        *_servers(values),
        *_memory(values),
    ]
    return " ".join(sentences)


def _simple(values: PolicyValues, _limit: int) -> list[str]:
    if values.window_size is None:
        return ["Of the history, as many of the newest messages go along as fit."]
    return [f"Of the history, the newest {values.window_size:,} messages go along."]


def _sliding(values: PolicyValues, limit: int) -> list[str]:
    high = compact_mark(values, prompt_limit=limit)
    return [f"At {high:,} tokens the oldest history stays behind, {_down_to(values, limit)}."]


def _summary(values: PolicyValues, limit: int) -> list[str]:
    prepare, high = (
        prepare_mark(values, prompt_limit=limit),
        compact_mark(values, prompt_limit=limit),
    )
    writer = values.summarization_model or "the built-in extractor"
    rounds = ""
    if values.turn_threshold is not None:
        rounds = f", or after more than {values.turn_threshold:,} turns,"
    sentences = [
        f"From {prepare:,} tokens on{rounds} {writer} prepares a summary of at most "
        f"{values.summary_max_tokens:,} tokens for older messages.",
        f"At {high:,} tokens it takes their place, {_down_to(values, limit)}; the newest "
        f"{values.keep_last_messages:,} messages stay in full where they fit.",
    ]
    if values.pinned_kinds:
        names = (KIND_NAMES[kind] for kind in values.pinned_kinds)
        kinds = ", ".join(f"{name[0].lower()}{name[1:]}" for name in names)
        sentences.append(f"A summary that loses any of these is rejected: {kinds}.")
    if values.summary_instruction.strip() and values.summarization_model:
        sentences.append(f"{writer} follows an instruction of its own.")
    if values.summary_sections:
        sentences.append(f"A summary has the headings {', '.join(values.summary_sections)}.")
    if values.approval != "nobody":
        who = APPROVALS[values.approval]
        sentences.append(f"{who} approves each summary before it is used.")
    return sentences


def _state(values: PolicyValues, _limit: int) -> list[str]:
    properties = values.state_schema.get("properties")
    names = ", ".join(properties) if isinstance(properties, dict) else ""
    kept = f" ({names})" if names else ""
    newest = "No past dialogue goes along"
    if values.keep_last_messages:
        newest = f"The newest {values.keep_last_messages:,} messages go along"
    return [f"{newest}; a state{kept} stands for the rest."]


def _other(values: PolicyValues, _limit: int) -> list[str]:
    return [f"The strategy {values.strategy} chooses what history goes along."]


def _down_to(values: PolicyValues, limit: int) -> str:
    if values.compact_every_turns is not None:
        return f"so far that the next time comes in about {values.compact_every_turns:,} turns"
    return f"down to {low_mark(values, prompt_limit=limit):,} tokens"


def _ceilings(values: PolicyValues) -> list[str]:
    sentences = []
    ceilings = [
        f"{number:,} {unit}"
        for number, unit in (
            (values.window_size if values.strategy != "simple" else None, "messages"),
            (values.window_turns, "turns"),
            (values.window_tokens, "tokens"),
        )
        if number is not None
    ]
    if ceilings:
        sentences.append(f"Never more than {' or '.join(ceilings)} of the history go along.")
    if values.max_bytes is not None:
        sentences.append(f"A prompt has at most {values.max_bytes:,} bytes.")
    if values.pins_tokens is not None:
        sentences.append(f"Pins may take {values.pins_tokens:,} tokens.")
    return sentences


def _cuts(values: PolicyValues) -> list[str]:
    sentences = []
    if values.max_chars_per_message is not None:
        sentences.append(
            f"Each message of the history is cut to {values.max_chars_per_message:,} characters."
        )
    for tool, rule in values.tool_output_rules.items():
        whose = "other tools" if tool == "*" else tool
        said = []
        if "limit" in rule:
            said.append(f"are cut to {rule['limit']:,} characters")
        if "keep_newest" in rule:
            said.append(f"are left out but for the newest {rule['keep_newest']:,}")
        if said:
            sentences.append(f"Results of {whose} {' and '.join(said)}.")
    return sentences


def _layout(values: PolicyValues) -> list[str]:
    sentences = []
    if values.layout != "multi_turn":
        sentences.append(f"The history goes along as text (layout {values.layout}).")
    if values.show_date:
        sentences.append("The day stands before the question.")
    if values.references:
        sentences.append(
            f"At most {values.reference_count} passages of earlier messages "
            f"({values.reference_tokens:,} tokens) go along with a question that shares words "
            f"with them, taken from: {REFERENCE_SCOPES[values.reference_scope].lower()}."
        )
    return sentences


def _rights(values: PolicyValues) -> list[str]:
    sentences = [f"New messages over {values.input_length_limit:,} characters are refused."]
    if values.allowed_models is not None:
        sentences.append(f"Allowed models: {', '.join(values.allowed_models) or 'none'}.")
    if not values.temporary_chats:
        sentences.append("People cannot begin temporary chats.")
    if values.retention_days is not None:
        days = "1 day" if values.retention_days == 1 else f"{values.retention_days:,} days"
        sentences.append(f"Messages are erased after {days}, unless a legal hold covers them.")
    if values.chat_system == "ignore":
        sentences.append("A chat has no system text of its own.")
    if values.system_text and values.hide_system_text:
        sentences.append("The system text is hidden from the people who chat.")
    return sentences


def _servers(values: PolicyValues) -> list[str]:
    sentences = []
    if not values.warm_up:
        sentences.append("No prompt is read ahead.")
    if values.unmanaged != "keys":
        told = UNMANAGED[values.unmanaged].lower()
        sentences.append(f"Requests of programs that are passed on as they came: {told}.")
    if not values.cache_marks:
        sentences.append("Servers with Anthropic’s interface keep no prompt in their cache.")
    return sentences


def _memory(values: PolicyValues) -> list[str]:
    sentences = []
    if not values.own_instructions:
        sentences.append("What a person wrote for all of their chats does not go along.")
    if not values.preferences:
        sentences.append("No preferences are noted or sent.")
    elif not values.inferred_preferences:
        sentences.append("No model proposes preferences.")
    if values.recent_by_user is not None:
        sentences.append(
            f"The newest {values.recent_by_user:,} messages of a person's other chats go along."
        )
    if values.memory_providers is not None:
        names = ", ".join(values.memory_providers) or "no provider"
        sentences.append(f"What is known of a person goes to {names} alone.")
    if values.skills:
        sentences.append(f"Skills in the system text: {', '.join(values.skills)}.")
    return sentences
