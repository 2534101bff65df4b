"""Writes a summary without a model.

The summary consists of whole sentences from the chat, with author, day and source. The extractor
selects and quotes sentences; it does not rephrase them. From users' code it quotes whole lines. It
is deterministic, costs nothing, and writes in the language of the chat. It is used if a policy has
no summarising model.

It selects the sentences with the most facts for their length. A fact (a date, a price, a name, a
word that the chat repeats) counts only for the first selected sentence that contains it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from contextpolicy.engine.messages.messages import Message, Summary
from contextpolicy.engine.messages.tokens import TokenCounter
from contextpolicy.engine.summaries.fact_weights import weigh_candidates
from contextpolicy.engine.summaries.prompts import SECTIONS
from contextpolicy.engine.summaries.sentence_candidates import (
    SMALL_TALK,
    Candidate,
    extract_candidates,
    find_refrains,
    get_reply_share,
    match_section,
    parse_previous_summary,
)
from contextpolicy.engine.summaries.sentence_scores import normalise_sentence
from contextpolicy.engine.summaries.sentence_selection import select_candidates, shorten_candidate
from contextpolicy.engine.summaries.summary_text import write_sections
from contextpolicy.engine.text.claims import strip_summary_labels

EXTRACTIVE_V9 = "extractive-v9"
# In characters; the shorter limits are tried if no sentence fits.
SENTENCE_LENGTHS = (400, 120, 50)
# Maximum size of a summary as a share of the messages it replaces; a larger one would gain little.
LARGEST_SHARE = 0.6
# In summaries of fewer tokens than this, the five headings take too much room.
SMALL_SUMMARY = 80
# Headings that would take more than this share of a summary are omitted. In scripts without
# capitals, which are dense, a heading displaces more content.
HEADINGS_SHARE, DENSE_HEADINGS_SHARE = 0.25, 0.1
# Without headings, days are omitted from labels that would take more than this share.
LABELS_SHARE = 0.1


def build_extractive_summary(
    messages: Sequence[Message],
    previous: Summary | None,
    *,
    max_tokens: int,
    counter: TokenCounter,
    unquoted: int = 0,
    sections: Sequence[str] = SECTIONS,
    cited: Sequence[Message] = (),
) -> str:
    """Summarise `previous` and `messages` in sections of bullets with labels and source marks.

    The format is that of `claims`. Sentences of the previous summary compete with the new ones.
    `cited`: the messages that the previous summary cites, which provide the author and day of its
    sentences. The new summary has at most `max_tokens` and is smaller than the text it replaces. A
    small summary has no headings. If no sentence fits, only the headings remain. `unquoted`: tokens
    of messages that are covered but not quoted. A sentence that fits none of the `sections` is
    placed in the first one.
    """
    new = sum(message.tokens for message in messages) + unquoted
    old = previous.tokens if previous else 0
    shared = old + int(new * LARGEST_SHARE)
    limit = min(max_tokens, max(shared, min(old + new - 1, SMALL_SUMMARY)))
    refrains = find_refrains(messages)
    by_reply = get_reply_share([*cited, *messages])
    found = [
        *parse_previous_summary(previous, refrains, sections, messages, cited, by_reply),
        *(
            _move_to_section(line, sections)
            for line in extract_candidates(messages, refrains, by_reply)
        ),
    ]
    lines = weigh_candidates(_remove_duplicates(found), messages, cited)
    telling = [line.sentence for line in lines if line.sentence.weight > SMALL_TALK]
    is_dense = sum(bool(said.clauses) for said in telling) > len(telling) / 2
    share = DENSE_HEADINGS_SHARE if is_dense else HEADINGS_SHARE
    is_plain = counter.count(write_sections([], sections)) > share * limit
    headings = () if is_plain else sections
    for longest in SENTENCE_LENGTHS:
        short = [shorten_candidate(line, longest) for line in lines]
        chosen = select_candidates(short, limit, counter, headings)
        if not chosen:
            continue
        text = write_sections(chosen, headings)
        labels = counter.count(text) - counter.count(strip_summary_labels(text))
        if not headings and labels > LABELS_SHARE * limit:
            undated = [replace(line, day="") for line in short]
            text = write_sections(select_candidates(undated, limit, counter, headings), headings)
        return text
    return write_sections([], sections)


def _move_to_section(line: Candidate, sections: Sequence[str]) -> Candidate:
    """Move a line to the requested section of the same name, otherwise to the first section."""
    return replace(
        line,
        sentence=replace(line.sentence, section=match_section(line.sentence.section, sections)),
    )


def _remove_duplicates(lines: Iterable[Candidate]) -> list[Candidate]:
    """Keep the newest line of each wording."""
    by_wording: dict[str, Candidate] = {}
    for line in lines:
        said = normalise_sentence(line.sentence.text)
        share = max(line.share, by_wording[said].share if said in by_wording else 0.0)
        by_wording[said] = replace(line, share=share)
    return list(by_wording.values())
