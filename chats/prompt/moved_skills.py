"""Skills whose loaded texts leave the history at a compaction and move to the system text.

A compaction stores their slugs, so an undo restores the previous ones. A text stays in the system
text until the next compaction; after that the model loads it again if it needs it.
"""

from collections.abc import Iterator

from chats.models import Branch, Compaction, Message
from chats.record import history
from contextpolicy.engine.messages.messages import parse_parts
from contextpolicy.engine.messages.skills import (
    MOVED_SHARE,
    choose_moved_skills,
    find_stored_skills,
    format_skill_text,
)
from contextpolicy.engine.messages.tokens import TokenCounter
from contextpolicy.engine.policy.budget import compute_prompt_limit
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.skills import load_chat_skills

# The finish of messages with tool results.
WITH_RESULTS = (Message.Finish.TOOL_CALLS, Message.Finish.LIMIT)


def find_moved_skills(
    branch: Branch,
    *,
    after: int,
    to_seq: int,
    values: PolicyValues,
    counter: TokenCounter,
    before: tuple[str, ...] = (),
) -> list[str]:
    """Return the slugs of skills that messages `after` < seq <= `to_seq` loaded and that move.

    Skills that the chat does not have any more are dropped, and so are the oldest if the texts
    exceed a tenth of the prompt limit. `before`: slugs that a summary below a window moved.
    """
    slugs = [*before, *iter_loaded_skills(branch, after=after, to_seq=to_seq)]
    if not slugs:
        return []
    chat = branch.chat
    found = load_chat_skills(values.skills, owner=chat.owner_id, team=chat.team_id)
    tokens = {
        skill.slug: counter.count(format_skill_text(skill.name, skill.text))
        for skill in found
        if skill.on_demand and skill.slug in slugs
    }
    limit = compute_prompt_limit(values, model_window=chat.model.window if chat.model else None)
    loaded = [(slug, tokens[slug]) for slug in slugs if slug in tokens]
    return list(choose_moved_skills(loaded, room=int(MOVED_SHARE * limit)))


def iter_loaded_skills(branch: Branch, *, after: int, to_seq: int) -> Iterator[str]:
    """Yield the slugs of skills that a range of messages loaded, oldest first."""
    rows = history.select_path_messages(branch, after=after, before=to_seq + 1).filter(
        finish__in=WITH_RESULTS, excluded=False, erased_at=None
    )
    for parts in rows.order_by("seq").values_list("parts", flat=True).iterator(chunk_size=100):
        yield from find_stored_skills(parse_parts(parts))


def find_window_skills(
    branch: Branch,
    *,
    base: Compaction | None,
    to_seq: int,
    values: PolicyValues,
    counter: TokenCounter,
) -> list[str]:
    """Return the slugs of skills in the system text of a window over its summary `base`."""
    return find_moved_skills(
        branch,
        after=base.to_seq if base else 0,
        to_seq=to_seq,
        values=values,
        counter=counter,
        before=tuple(base.skills or ()) if base else (),
    )
