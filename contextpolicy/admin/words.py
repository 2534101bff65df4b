"""A policy in plain words."""

from contextpolicy.engine.budget import compact_mark, low_mark, prepare_mark, prompt_limit
from contextpolicy.engine.policy import PolicyValues

STRATEGY_NAMES = {
    "simple": "Newest messages, counted",
    "sliding_window": "Newest messages, as many as fit",
    "dynamic_summary": "Newest messages and a summary of the rest",
}


def plain_words(values: PolicyValues) -> str:
    """What these values do, in a few sentences with their numbers."""
    limit = prompt_limit(values, model_window=None)
    describe = {"simple": _simple, "sliding_window": _sliding, "dynamic_summary": _summary}
    sentences = [
        f"Sends at most {limit:,} tokens and keeps {values.reserve_tokens:,} free for the reply.",
        *describe.get(values.strategy, _other)(values, limit),
        *_cuts(values),
        *_rights(values),
    ]
    return " ".join(sentences)


def _simple(values: PolicyValues, _limit: int) -> list[str]:
    if values.window_size is None:
        return ["Of the history, as many of the newest messages go along as fit."]
    return [f"Of the history, the newest {values.window_size:,} messages go along."]


def _sliding(values: PolicyValues, limit: int) -> list[str]:
    high, low = compact_mark(values, prompt_limit=limit), low_mark(values, prompt_limit=limit)
    return [f"At {high:,} tokens the oldest history stays behind, down to {low:,} tokens."]


def _summary(values: PolicyValues, limit: int) -> list[str]:
    prepare, high = (
        prepare_mark(values, prompt_limit=limit),
        compact_mark(values, prompt_limit=limit),
    )
    low = low_mark(values, prompt_limit=limit)
    writer = values.summarization_model or "the built-in extractor"
    rounds = ""
    if values.turn_threshold is not None:
        rounds = f", or after more than {values.turn_threshold:,} rounds,"
    return [
        f"From {prepare:,} tokens on{rounds} {writer} prepares a summary of at most "
        f"{values.summary_max_tokens:,} tokens for older messages.",
        f"At {high:,} tokens it takes their place, down to {low:,}; the newest "
        f"{values.keep_last_messages:,} messages stay in full where they fit.",
    ]


def _other(values: PolicyValues, _limit: int) -> list[str]:
    return [f"The strategy {values.strategy} chooses what history goes along."]


def _cuts(values: PolicyValues) -> list[str]:
    sentences = []
    if values.max_chars_per_message is not None:
        sentences.append(
            f"Each message of the history is cut to {values.max_chars_per_message:,} characters."
        )
    if values.strategy != "simple" and values.window_size is not None:
        sentences.append(f"Never more than {values.window_size:,} of them go along.")
    return sentences


def _rights(values: PolicyValues) -> list[str]:
    sentences = [f"New messages over {values.input_length_limit:,} characters are refused."]
    if values.allowed_models is not None:
        sentences.append(f"Allowed models: {', '.join(values.allowed_models) or 'none'}.")
    if values.system_text and values.hide_system_text:
        sentences.append("The system text is hidden from the people who chat.")
    return sentences
