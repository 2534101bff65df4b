"""Measures the scripts in a prompt's text, because token counts are calibrated by script."""

from collections.abc import Iterable, Iterator

from contextpolicy.engine.compose.assembly import ComposeInput
from contextpolicy.engine.messages import messages as engine
from contextpolicy.engine.text import scripts


def measure_prompt_scripts(given: ComposeInput) -> dict[str, float]:
    texts = [text for _, text in given.system]
    texts += [given.summary.text] if given.summary else []
    told = iter_prompt_texts((*given.history, *given.question, *given.steps))
    return scripts.compute_script_shares((*texts, *told))


def iter_prompt_texts(messages: Iterable[engine.Message]) -> Iterator[str]:
    """Yield the texts of messages, including tool results."""
    for message in messages:
        for part in message.parts:
            if isinstance(part, engine.TextPart):
                yield part.text
            elif isinstance(part, engine.ToolResultPart):
                yield part.content
            elif isinstance(part, engine.FilePart):
                yield part.text
