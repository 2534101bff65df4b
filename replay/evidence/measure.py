"""Asks the questions of a conversation under one policy, and scores the prompts."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from contextpolicy.engine.messages.tokens import TokenCounter
from replay.evidence.chats import MeasuredChat, roll_back_changes
from replay.evidence.conversations import EvidenceQuestion, QuestionedConversation
from replay.evidence.losses import find_lost_step, repeat_search
from replay.evidence.presence import SearchedPrompt, WordRarity

# The price of a token that a provider's cache has, as a share of the full price.
CACHED_PRICE = 0.1


@dataclass(slots=True)
class QuestionScore:
    """The score of one prompt: the evidence that it contains, and its tokens."""

    question: EvidenceQuestion
    present: int
    dated: int
    tokens: int
    lost: Counter[str] = field(default_factory=Counter)

    @property
    def is_complete(self) -> bool:
        """Return True if the prompt contains all the messages that the answer needs."""
        return self.present == len(self.question.evidence)

    @property
    def is_dated(self) -> bool:
        """True if the prompt has all these messages with their days, or no days are needed."""
        return self.dated == len(self.question.evidence)


@dataclass(slots=True)
class Scores:
    """The scores of several questions, and the token counts of consecutive prompts.

    `cached` counts the tokens of `sent` that belong to the unchanged prefix of the previous prompt.
    """

    rows: list[QuestionScore] = field(default_factory=list)
    sent: int = 0
    cached: int = 0

    def add_turns(self, prompts: Sequence[Sequence[str]], *, counter: TokenCounter) -> None:
        """Add the prompts of consecutive turns, each as the texts of its messages.

        The first prompt is only compared with the second one; its tokens are not counted.
        """
        for before, texts in pairwise(prompts):
            self.sent += sum(map(counter.count, texts))
            self.cached += count_common_tokens(before, texts, counter=counter)

    def share(self) -> float:
        """Return the share of the questions whose evidence is in the prompt."""
        return sum(row.is_complete for row in self.rows) / max(len(self.rows), 1)

    def share_of_messages(self) -> float:
        needed = sum(len(row.question.evidence) for row in self.rows)
        return sum(row.present for row in self.rows) / max(needed, 1)

    def share_with_day(self) -> float | None:
        """Return the share of the temporal questions with evidence and day.

        Returns None if there are no temporal questions.
        """
        temporal = [row for row in self.rows if row.question.is_temporal]
        return sum(row.is_dated for row in temporal) / len(temporal) if temporal else None

    def tokens(self) -> float:
        return sum(row.tokens for row in self.rows) / max(len(self.rows), 1)

    def cached_share(self) -> float:
        """Return the share of a turn's tokens that the provider's cache can serve."""
        return self.cached / max(self.sent, 1)

    def cost(self) -> float:
        """Return the mean cost of a prompt, in tokens at full price."""
        return self.tokens() * (1 - (1 - CACHED_PRICE) * self.cached_share())

    def lost(self) -> Counter[str]:
        """Return the number of evidence messages that were lost, by step."""
        return sum((row.lost for row in self.rows), Counter[str]())


class Scorer:
    """Scores prompts about one conversation."""

    def __init__(self, conversation: QuestionedConversation, *, counter: TokenCounter) -> None:
        self.counter = counter
        self.messages = {one.id: one for one in conversation.messages}
        self.rarity = WordRarity.of(one.text for one in conversation.messages)

    def score(
        self, question: EvidenceQuestion, texts: Sequence[str], *, tokens: int
    ) -> QuestionScore:
        """Score the texts of a prompt by the evidence of a question that they contain."""
        missing = set(self.missing(question, texts))
        undated = 0
        if question.is_temporal:
            undated = sum(
                not self.has(
                    SearchedPrompt(texts).of_day(f"{self.messages[one].at:%Y-%m-%d}"), one, question
                )
                for one in question.evidence
            )
        needed = len(question.evidence)
        return QuestionScore(question, needed - len(missing), needed - undated, tokens)

    def missing(self, question: EvidenceQuestion, texts: Sequence[str]) -> list[str]:
        """Return the ids of the evidence that a prompt does not contain."""
        prompt = SearchedPrompt(texts)
        return [one for one in question.evidence if not self.has(prompt, one, question)]

    def has(self, prompt: SearchedPrompt, message_id: str, question: EvidenceQuestion) -> bool:
        """Return True if a prompt contains a message, or the sentences with the answer."""
        text = self.messages[message_id].text
        return prompt.contains(text, answer=question.answer, rarity=self.rarity)


def ask_all(
    measured: MeasuredChat, questions: Sequence[EvidenceQuestion], *, scorer: Scorer
) -> Iterator[QuestionScore]:
    """Yield the score of each question.

    The changes by each question are rolled back, so the chat does not contain the questions.
    """
    for question in questions:
        with roll_back_changes():
            turn, prompt = measured.ask(question.text)
            texts = [message.content for message in prompt.request.messages]
            scored = scorer.score(question, texts, tokens=prompt.prompt_tokens)
            if not scored.is_complete:
                found = repeat_search(measured, turn=turn, prompt=prompt)
                for one in scorer.missing(question, texts):
                    step = find_lost_step(
                        measured.seqs[one], measured=measured, prompt=prompt, found=found
                    )
                    scored.lost[step] += 1
        yield scored


def count_common_tokens(
    before: Sequence[str], texts: Sequence[str], *, counter: TokenCounter
) -> int:
    """Return the token count of the unchanged prefix of two consecutive prompts."""
    tokens = 0
    for old, new in zip(before, texts, strict=False):
        if old == new:
            tokens += counter.count(new)
            continue
        pairs = enumerate(zip(old, new, strict=False))
        same = next((at for at, (a, b) in pairs if a != b), min(len(old), len(new)))
        return tokens + counter.count(new[:same])
    return tokens
