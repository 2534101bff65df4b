"""An object of every kind that Alice owns; its texts have words that other users must not see."""

import io
import uuid
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import Group, User

from chats.actions import lifecycle
from chats.compaction.sections import parse_sections
from chats.files import uploads
from chats.models import (
    Chat,
    Compaction,
    DailyCount,
    FileImport,
    Folder,
    ImportOutcome,
    MemorySettings,
    Message,
    MessageImage,
    PendingErasure,
    Preference,
    PromptText,
    ProviderAccount,
    Receipt,
    RetentionRun,
    Turn,
)
from chats.people import keys
from chats.prompt import model_choice
from chats.record.audit_access import derive_request_id
from chats.turns.start import get_active_branch
from chats.webhooks import managing as webhooks
from contextpolicy.engine.text.fact_scanner import KINDS
from contextpolicy.holds import place_hold
from contextpolicy.ledger import record_event
from contextpolicy.models import BlastRadius, EffectivePolicy, Evaluation, ModelSpec, Skill
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy

CANARY = "canary-4b1d"


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts by users and servers, by field; a test may replace them."""

    title: str = f"{CANARY}-title"
    message: str = f"{CANARY}-message"
    reply: str = f"{CANARY}-reply"
    partial: str = f"{CANARY}-partial"
    summary: str = f"{CANARY}-summary"
    prompt: str = f"{CANARY}-prompt"
    tool: str = f"{CANARY}-tool"
    key: str = f"{CANARY}-key"
    folder: str = f"{CANARY}-folder"
    # Texts that administrators may read: written by them, or by the product.
    model: str = "a model"
    provider: str = "a provider"
    policy: str = "a policy"
    policy_text: str = "Be brief."
    error: str = "The provider did not answer."
    reason: str = "not_smaller"
    group: str = "a group"


@dataclass(slots=True)
class World:
    """The rows, by the names that URLs use."""

    texts: Texts
    chat: Chat
    ids: dict[str, Any]
    rows: dict[str, Any] = field(default_factory=dict)


def upload_text(text: str, *, owner: User, now: datetime) -> uuid.UUID:
    """Upload a text file and return its id."""
    return uploads.accept_upload(io.BytesIO(text.encode()), name="a.txt", owner=owner, now=now)[
        0
    ].pk


def build(*, alice: User, now: datetime, texts: Texts | None = None) -> World:
    """Create Alice's chat with a summary, a failed and a running turn, and administrators' rows."""
    texts = texts or Texts()
    account = ProviderAccount.objects.create(slug="acme", name=texts.provider, kind="demo")
    model = ModelSpec.objects.create(
        slug="model", provider="acme", name=texts.model, label=texts.model, is_default=True
    )
    policy = create_policy(
        slug="house",
        name=texts.policy,
        values={"system_text": texts.policy_text},
        actor="system",
        now=now,
    )
    chat = lifecycle.create_chat(owner=alice, now=now, model=model, system_text=texts.prompt)
    Chat.objects.filter(pk=chat.pk).update(title=texts.title)
    chat.refresh_from_db()
    assigned = assign_policy(policy=policy, level="instance", actor="system", now=now)
    effective = model_choice.resolve_effective_policy(chat=chat, model=model)
    turns = [make_turn(chat, n, now=now, texts=texts, policy=effective) for n in (1, 2)]
    finish(turns[0], texts=texts, now=now)
    summary = make_summary(chat, now=now, texts=texts, policy=effective)
    receipt = make_receipt(turns[0], now=now, texts=texts, policy=effective)
    key, _ = keys.create_key(owner=alice, name=texts.key, scopes=keys.SCOPES, now=now)
    event = record_event("chat.created", actor=f"user:{alice.pk}", now=now, chat_id=chat.pk)
    folder = Folder.objects.create(owner=alice, name=texts.folder)
    Chat.objects.filter(pk=chat.pk).update(folder=folder)
    MemorySettings.objects.create(owner=alice, consented_at=now, instructions=texts.prompt)
    preference = Preference.objects.create(
        owner=alice,
        slot="note",
        text=texts.folder[:200],
        kind="written",
        status="current",
        valid_from=now,
        learned_at=now,
    )
    webhook, _ = webhooks.create_webhook(
        owner=alice, url="https://example.org/told", events=["task.changed"], now=now
    )
    pending = PendingErasure.objects.create(owner=alice, preference=preference, asked_at=now)
    hold = place_hold(
        level="chat",
        chat_id=uuid.uuid4(),
        case=texts.group[:120],
        reason=texts.policy_text[:500],
        actor="system",
        now=now,
    )
    file = FileImport.objects.create(owner=alice, size=1, reason=texts.title, created_at=now)
    ImportOutcome.objects.create(file=file, place=1, title=texts.title[:200], reason=texts.title)
    run = RetentionRun.objects.create(
        started_at=now, finished_at=now, is_open=False, digest="0" * 64
    )
    counted = BlastRadius.objects.create(
        policy=policy, digest="0" * 64, base=1, place="instance", started_at=now
    )
    evaluation = Evaluation.objects.create(
        policy=policy,
        version=policy.versions.get(),
        base=1,
        place="instance",
        started_at=now,
        ends_at=now,
    )
    ids = {
        "file_id": upload_text(texts.prompt, owner=alice, now=now),
        "import_id": file.pk,
        "evaluation_id": evaluation.pk,
        "radius_id": counted.pk,
        "erasure_id": pending.pk,
        "asked_id": derive_request_id(event),
        "hold_id": hold.pk,
        "run_id": run.pk,
        "webhook_id": webhook.pk,
        "delivery_id": webhooks.queue_test_event(webhook=webhook, now=now).public_id,
        "chat_id": chat.pk,
        "folder_id": folder.pk,
        "turn_id": turns[1].pk,
        "message_id": turns[0].trigger_id,
        "branch_id": chat.active_branch_id,
        "compaction_id": summary.pk,
        "receipt_id": receipt.pk,
        "key_id": key.pk,
        "preference_id": preference.pk,
        "sha256": image_of(turns[0], texts=texts).sha256,
        "token": "absent",
        "id": alice.pk,
        "content_type_id": 1,
    }
    rows = {
        "contextpolicy_contextpolicy": policy,
        "contextpolicy_policyassignment": assigned,
        "contextpolicy_effectivepolicy": effective,
        "contextpolicy_auditevent": event,
        "contextpolicy_modelspec": model,
        "contextpolicy_skill": Skill.objects.create(
            slug="skill", name="Skill", text="Be kind.", updated_at=now
        ),
        "contextpolicy_legalhold": hold,
        "contextpolicy_blastradius": counted,
        "contextpolicy_evaluation": evaluation,
        "chats_retentionrun": run,
        "chats_dailycount": DailyCount.objects.create(day=now.date(), model="demo", replies=1),
        "chats_provideraccount": account,
        "chats_turn": turns[0],
        "chats_receipt": receipt,
        "chats_compaction": summary,
        "auth_user": alice,
        "auth_group": Group.objects.create(name=texts.group),
    }
    return World(texts=texts, chat=chat, ids=ids, rows=rows)


def make_turn(chat: Chat, n: int, *, now: datetime, texts: Texts, policy: EffectivePolicy) -> Turn:
    """Create a message of Alice's and its turn, running with some text."""
    branch = get_active_branch(chat)
    message = Message.objects.create(
        branch=branch,
        seq=2 * n - 1,
        accepted=4 * n,
        role="user",
        parts=[{"type": "text", "text": texts.message}],
        created_at=now,
    )
    return Turn.objects.create(
        branch=branch,
        accepted=4 * n + 1,
        trigger=message,
        status="running" if n == 2 else "queued",
        lease_token="t" if n == 2 else "",
        lease_until=now + timedelta(days=1) if n == 2 else None,
        queued_at=now,
        model_name=texts.model,
        effective_policy=policy,
        partial_text=texts.partial,
        partial_reasoning=texts.partial,
    )


def finish(turn: Turn, *, texts: Texts, now: datetime) -> None:
    """Store a step with a tool's result as the reply, then let the provider fail."""
    turn.reply = Message.objects.create(
        branch=turn.branch,
        seq=2,
        accepted=99,
        role="assistant",
        parts=[
            {"type": "reasoning", "text": texts.reply},
            {"type": "tool_call", "call_id": "c", "name": texts.tool, "arguments": texts.tool},
            {"type": "tool_result", "call_id": "c", "name": texts.tool, "content": texts.tool},
            {"type": "text", "text": texts.reply},
        ],
        turn=turn,
        model_name=texts.model,
        finish="incomplete",
        created_at=now,
    )
    turn.status, turn.error_code, turn.error_sentence = "failed", "provider_error", texts.error
    turn.finished_at = now
    turn.save()
    turn.branch.last_seq = 3
    turn.branch.save()


def make_summary(chat: Chat, *, now: datetime, texts: Texts, policy: EffectivePolicy) -> Compaction:
    """Create a summary of the first message, and one attempt that failed its check."""
    text = f"## Facts\n\n- {texts.summary} [1]\n"
    common: dict[str, Any] = {
        "branch": chat.active_branch,
        "kind": "summary",
        "from_seq": 1,
        "to_seq": 1,
        "text": text,
        "sections": parse_sections(text),
        "retention": {"lost": {next(iter(KINDS)): [texts.summary]}},
        "trigger": "auto",
        "model_name": texts.model,
        "effective_policy": policy,
        "created_at": now,
    }
    Compaction.objects.create(status="rejected", reason=texts.reason, **common)
    row = Compaction.objects.create(status="published", published_at=now, **common)
    branch = get_active_branch(chat)
    branch.refresh_from_db()
    branch.active_compaction = row
    branch.save()
    return row


def image_of(turn: Turn, *, texts: Texts) -> MessageImage:
    """An image of a turn's question; its bytes are words, so that a test can find them."""
    return MessageImage.objects.create(
        message=Message.objects.get(triggered=turn),
        sha256="a" * 64,
        media_type="image/png",
        data=texts.message.encode(),
    )


def make_receipt(turn: Turn, *, now: datetime, texts: Texts, policy: EffectivePolicy) -> Receipt:
    """The content that the failed call was sent."""
    digest = uuid.uuid4().hex * 2
    PromptText.objects.create(digest=digest, origin="system", text=texts.prompt)
    return Receipt.objects.create(
        turn=turn,
        attempt=1,
        step=1,
        effective_policy=policy,
        model_name=texts.model,
        segments=[
            ["system", "system", None, 5, None, digest, None],
            ["question", str(turn.trigger_id), 1, 9, None, "", None],
        ],
        left_out=[],
        budget={"token_budget": 100, "reserve": 10, "prompt_limit": 90},
        prompt_tokens=14,
        prompt_sha256="0" * 64,
        last_seq=1,
        notes=[],
        outcome="failed",
        created_at=now,
    )
