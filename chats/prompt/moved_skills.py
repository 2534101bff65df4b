"""Skills whose loaded text moves from the history to the system text at a compaction.

Loaded file parts move too. A compaction stores the slugs and keys of parts, so an undo restores the
previous ones. Loaded text stays in the system text until the next compaction; after that the model
loads it again if needed.
"""

from collections.abc import Iterator, Sequence

from chats.models import Branch, Compaction
from chats.record import history
from chats.record.sendable import WITH_RESULTS, build_sendable_filter
from contextpolicy.engine.compose.system_text import SkillText, build_moved_part
from contextpolicy.engine.messages.messages import parse_parts
from contextpolicy.engine.messages.skills import (
    MOVED_SHARE,
    choose_moved_skills,
    find_stored_skills,
)
from contextpolicy.engine.messages.tokens import TokenCounter
from contextpolicy.engine.policy.budget import compute_prompt_limit
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.skill_files import load_moved_texts
from contextpolicy.skills import load_chat_skills


def find_moved_skills(
    branch: Branch,
    *,
    after: int,
    to_seq: int,
    values: PolicyValues,
    counter: TokenCounter,
    before: tuple[str, ...] = (),
) -> list[str]:
    """Return the skills to move: those loaded by messages with `after` < seq <= `to_seq`.

    Returns slugs of skills and keys of parts of their files. Skills that the chat no longer
    has are dropped, and so are the oldest if the texts exceed a tenth of the prompt limit.
    `before`: slugs and keys that a summary below a window moved.
    """
    keys = [*before, *iter_loaded_skills(branch, after=after, to_seq=to_seq)]
    return choose_known_skills(branch, keys=keys, values=values, counter=counter)


def choose_known_skills(
    branch: Branch, *, keys: Sequence[str], values: PolicyValues, counter: TokenCounter
) -> list[str]:
    """Return the keys whose skills the chat has and whose texts fit, oldest first.

    `keys`: slugs of skills and keys of parts of files, oldest first.
    """
    if not keys:
        return []
    chat = branch.chat
    found = load_chat_skills(values.skills, owner=chat.owner_id, team=chat.team_id)
    tokens = count_moved_tokens(keys, found=found, counter=counter)
    limit = compute_prompt_limit(values, model_window=chat.model.window if chat.model else None)
    loaded = [(key, tokens[key]) for key in keys if key in tokens]
    return list(choose_moved_skills(loaded, room=int(MOVED_SHARE * limit)))


def count_moved_tokens(
    keys: Sequence[str], *, found: Sequence[SkillText], counter: TokenCounter
) -> dict[str, int]:
    """Return the token counts of moved texts and parts of files, by key.

    Keys of skills that the chat no longer has are left out.
    """
    files = load_moved_texts(keys, known=found)
    built = {key: build_moved_part(key, skills=found, files=files) for key in set(keys)}
    return {key: counter.count(text) for key, parts in built.items() for _, text in parts}


def iter_loaded_skills(branch: Branch, *, after: int, to_seq: int) -> Iterator[str]:
    """Yield the slugs and keys of parts that a range of messages loaded, oldest first.

    Messages that prompts leave out are skipped, such as incomplete replies that were not kept.
    """
    rows = history.select_path_messages(branch, after=after, before=to_seq + 1).filter(
        build_sendable_filter(), finish__in=WITH_RESULTS
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
    """Return the skills that a window moves to the system text, as slugs and keys of parts.

    Includes the skills already moved by its summary `base`.
    """
    return find_moved_skills(
        branch,
        after=base.to_seq if base else 0,
        to_seq=to_seq,
        values=values,
        counter=counter,
        before=tuple(base.skills or ()) if base else (),
    )
