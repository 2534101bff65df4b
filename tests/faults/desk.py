"""`python -m tests.faults.desk`: call product functions for a test over JSON lines.

It is a process of the tree like any other. It accepts messages without a web process, and runs an
operator's actions. Each request and each answer is one line.
"""

import json
import statistics
import sys
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import django

django.setup()

from django.conf import settings  # noqa: E402  # needs the settings
from django.contrib.auth.models import User  # noqa: E402  # needs the settings
from django.db import close_old_connections  # noqa: E402  # needs the settings
from django.utils import timezone  # noqa: E402  # needs the settings

from chats.actions import lifecycle  # noqa: E402  # needs the settings
from chats.background import due_jobs  # noqa: E402  # needs the settings
from chats.compaction import pauses  # noqa: E402  # needs the settings
from chats.compaction.report import skip_reasons  # noqa: E402  # needs the settings
from chats.files import storage  # noqa: E402  # needs the settings
from chats.ground import queue  # noqa: E402  # needs the settings
from chats.ground.refusals import Refusal  # noqa: E402  # needs the settings
from chats.models import (  # noqa: E402  # needs the settings
    Branch,
    Chat,
    Compaction,
    Message,
    ProviderAccount,
    Turn,
)
from chats.people import keys  # noqa: E402  # needs the settings
from chats.prompt.tokenizer import O200kCounter  # noqa: E402  # needs the settings
from chats.providers import accounts, model_specs  # noqa: E402  # needs the settings
from chats.record import access  # noqa: E402  # needs the settings
from chats.simulation import evaluating, radius  # noqa: E402  # needs the settings
from chats.tool_servers import servers  # noqa: E402  # needs the settings
from chats.turns import opening, overflow_learning, start, stop  # noqa: E402  # needs the settings
from contextpolicy import ledger, policy_assignments, publish  # noqa: E402  # needs the settings
from contextpolicy.models import (  # noqa: E402  # needs the settings
    ContextPolicy,
    ModelSpec,
    Skill,
    ToolDefinition,
    ToolServer,
)
from contextpolicy.skills import save_skill  # noqa: E402  # needs the settings
from contextpolicy.tool_servers import approve_definition  # noqa: E402  # needs the settings
from replay.pipeline import is_valid_summary  # noqa: E402  # needs the settings

COUNTER = O200kCounter()


def prepare(*, addresses: dict[str, str], kind: str = "openai") -> dict[str, Any]:
    """Create two people with an API key each, and an account and a model for each address.

    The first model is the default.
    """
    now = timezone.now()
    for slug, address in addresses.items():
        account = ProviderAccount(slug=slug, name=slug, kind=kind)
        # The server must receive the calls of these tests only.
        values = {"base_url": address, "warm_up": False}
        accounts.save_provider_account(account=account, values=values, actor="system", now=now)
        spec = ModelSpec(slug=slug, provider=slug, name=slug, context_window=128_000)
        spec.is_default = spec.embeds = slug == next(iter(addresses))
        model_specs.save_model(model=spec, actor="system", now=now)
    people = {}
    for name in ("alice", "charlie"):
        user = User.objects.create_user(name)
        _, secret = keys.create_key(
            owner=user, name="tests", scopes=["chats:read", "chats:write", "gateway"], now=now
        )
        people[name] = secret
    return people


def new_chat(*, model: str = "", person: str = "alice") -> str:
    """Create a chat of a person."""
    owner = User.objects.get(username=person)
    chat = lifecycle.create_chat(owner=owner, now=timezone.now())
    if model:
        chat.model = ModelSpec.objects.get(slug=model)
        chat.save(update_fields=["model"])
    return str(chat.pk)


def post(*, chat: str, text: str, key: str = "", person: str = "alice") -> dict[str, str]:
    """Post a person's message."""
    user = User.objects.get(username=person)
    accepted = start.start_turn(
        user=user,
        chat=access.get_chat(user=user, chat_id=uuid.UUID(chat)),
        text=text,
        now=timezone.now(),
        idempotency_key=key,
    )
    return {"message": str(accepted.message.pk), "turn": str(accepted.turn.pk)}


def stop_turn(*, turn: str) -> str:
    """Stop a turn as Alice."""
    row = Turn.objects.get(pk=uuid.UUID(turn))
    return str(
        stop.stop_turn(user=User.objects.get(username="alice"), turn=row, now=timezone.now())
    )


def deliver(*, turn: str, times: int) -> None:
    """Deliver the task of a turn several times."""
    for _ in range(times):
        queue.publish_task(queue.RUN_TURN, {"turn_id": turn})


def begin_again(*, turn: str, times: int) -> float:
    """The median cost of late deliveries, in seconds."""
    took = []
    for _ in range(times):
        begun = time.perf_counter()
        found = opening.open_turn(
            turn_id=uuid.UUID(turn), worker="late", counter=COUNTER, now=timezone.now()
        )
        took.append(time.perf_counter() - begun)
        if found is not None:
            raise RuntimeError("the turn was claimed a second time")
    return statistics.median(took)


def sweep() -> int:
    """Run the scheduled sweep."""
    return due_jobs.run_all_due_jobs(now=timezone.now())


def save_account(*, slug: str) -> None:
    """Save an account again, which closes its circuit breaker."""
    account = ProviderAccount.objects.get(slug=slug)
    accounts.save_provider_account(account=account, values={}, actor="system", now=timezone.now())


def move_account(*, slug: str, base_url: str) -> None:
    """Change an account's address without a new check of its location."""
    ProviderAccount.objects.filter(slug=slug).update(base_url=base_url)


def forget_limit(*, slug: str) -> None:
    """Delete the learned context limit of a model."""
    overflow_learning.reset_learned_window(
        model=ModelSpec.objects.get(slug=slug), actor="system", now=timezone.now()
    )


def fold_early(*, chat: str) -> None:
    """Create a policy for one chat that makes the fake model compact after two rounds."""
    now = timezone.now()
    policy = publish.create_policy(
        slug=f"early-{chat}",
        name="Early",
        values={
            "strategy": "dynamic_summary",
            "turn_threshold": 2,
            "fold_turns": 1,
            "summarization_model": "fake",
        },
        actor="system",
        now=now,
    )
    policy_assignments.assign_policy(
        policy=policy, level="chat", chat_id=uuid.UUID(chat), actor="system", now=now
    )


def govern(*, preset: str = "", values: dict[str, Any] | None = None) -> None:
    """Apply a preset, or a new policy with these values, to everyone."""
    now = timezone.now()
    policy = (
        ContextPolicy.objects.get(slug=preset)
        if values is None
        else publish.create_policy(
            slug=f"own-{uuid.uuid4().hex[:8]}",
            name="Own",
            values=values,
            actor="system",
            now=now,
        )
    )
    policy_assignments.assign_policy(policy=policy, level="instance", actor="system", now=now)


def evaluate(*, strategy: str, values: dict[str, Any], waits: int) -> str:
    """Evaluate a draft of the policy of imported chats; shadow evaluation waits `waits` s."""
    now = timezone.now()
    policy = ContextPolicy.objects.get(name=strategy)
    draft = publish.create_policy_version(
        policy=policy, values=values, locks=[], note="", actor="system", now=now, is_draft=True
    )
    row = evaluating.start_evaluation(policy=policy, number=draft.number, actor="system", now=now)
    row.lease_until = now + timedelta(seconds=waits)
    row.save(update_fields=["lease_until"])
    return str(row.pk)


def count_chats(*, strategy: str, values: dict[str, Any]) -> str:
    """Count the chats that a policy of imported chats would change."""
    policy = ContextPolicy.objects.get(name=strategy)
    row = radius.start_radius_count(
        policy=policy,
        values=values,
        locks=[],
        place="assigned",
        actor="system",
        now=timezone.now(),
    )
    return str(row.pk)


def change_model(*, slug: str, values: dict[str, Any]) -> None:
    """Change fields of a model."""
    model = ModelSpec.objects.get(slug=slug)
    for name, value in values.items():
        setattr(model, name, value)
    model_specs.save_model(model=model, actor="system", now=timezone.now())


def allow_tools(*, chat: str, url: str, asks: bool = False) -> None:
    """Allow a chat the tools of a server, with consent if `asks`. Connects the server at its first
    use.
    """
    now = timezone.now()
    settings.ALLOWED_PRIVATE_PROVIDERS = [*settings.ALLOWED_PRIVATE_PROVIDERS, urlsplit(url).netloc]
    # Another test may have made the model's server reject tools.
    ModelSpec.objects.update(supports_tools=True)
    if not ToolServer.objects.exists():
        values = {"slug": "kills", "name": "Kills", "transport": "http", "url": url}
        server = servers.save_tool_server(
            server=ToolServer(), values=values, actor="system", now=now
        )
        servers.request_reading(server, now=now)
        servers.read_definitions(server_id=server.pk, counter=COUNTER, now=now)
        # A worker may have taken the job.
        for _ in range(100):
            if ToolDefinition.objects.exists():
                break
            time.sleep(0.1)
        for tool in ToolDefinition.objects.all():
            approve_definition(tool, digest=tool.digest, actor="system", now=now)
    ToolDefinition.objects.update(asks=asks)
    policy = ContextPolicy.objects.filter(slug="tools").first() or publish.create_policy(
        slug="tools", name="Tools", values={"tools": ["kills/*"]}, actor="system", now=now
    )
    place = uuid.UUID(chat)
    policy_assignments.assign_policy(
        policy=policy, level="chat", chat_id=place, actor="system", now=now
    )


def choose_skill(*, chat: str, text: str) -> None:
    """Give a chat the skill `refunds` on demand, with this text."""
    now = timezone.now()
    ModelSpec.objects.update(supports_tools=True)
    if not Skill.objects.filter(slug="refunds").exists():
        skill = Skill(slug="refunds", name="Refunds", description="Check refunds.", text=text)
        save_skill(skill=skill, actor="system", now=now)
    policy = ContextPolicy.objects.filter(slug="refunds").first() or publish.create_policy(
        slug="refunds", name="Refunds", values={"skills": ["refunds"]}, actor="system", now=now
    )
    place = uuid.UUID(chat)
    policy_assignments.assign_policy(
        policy=policy, level="chat", chat_id=place, actor="system", now=now
    )


def unsound() -> list[str]:
    """The active summaries that fail when their acceptance check is repeated."""
    rows = Compaction.objects.filter(kind="summary", published_at__isnull=False)
    return [str(row.pk) for row in rows if not is_valid_summary(row, counter=COUNTER)]


def import_chat(*, messages: int, strategy: str = "dynamic_summary") -> str:
    """Create a chat with many old messages for Alice, as an import does, under a policy."""
    now = timezone.now()
    chat = lifecycle.create_chat(owner=User.objects.get(username="alice"), now=now)
    words = "In the year {0} Anna Berg of Oslo had {1} orders, see https://a.example/{0}. " * 3
    branch = chat.active_branch
    rows = (
        Message(
            branch=branch,
            seq=number,
            accepted=number,
            role="assistant" if number % 2 == 0 else "user",
            parts=[{"type": "text", "text": words.format(1000 + number, number * 7)}],
            finish="stop" if number % 2 == 0 else "",
            token_count=75,
            counter_version=COUNTER.version,
            created_at=now,
        )
        for number in range(1, messages + 1)
    )
    Message.objects.bulk_create(rows, batch_size=500)
    Branch.objects.filter(chat=chat).update(last_seq=messages)
    Chat.objects.filter(pk=chat.pk).update(accepted_count=messages)
    policy = ContextPolicy.objects.filter(name=strategy).first() or publish.create_policy(
        slug=strategy.replace("_", "-"),
        name=strategy,
        values={"strategy": strategy, "token_budget": 16_000, "reserve_tokens": 2_000},
        actor="system",
        now=now,
    )
    policy_assignments.assign_policy(
        policy=policy, level="chat", chat_id=chat.pk, actor="system", now=now
    )
    return str(chat.pk)


def rest(*, chat: str) -> dict[str, Any]:
    """The breaker of a chat's summarising model: whether it is open, failures, remaining time."""
    now = timezone.now()
    found = skip_reasons.get_active_pauses(chat=Chat.objects.get(pk=uuid.UUID(chat)), now=now)
    breaker = found.model_breaker
    seconds = (breaker.retry_at - now).total_seconds() if breaker.retry_at else 0
    return {
        "is_open": breaker.is_open,
        "failures": breaker.failures,
        "seconds": seconds,
        "stops_everything": found.breaker.is_open,
    }


def reset_breaker(*, chat: str) -> None:
    """Reset the summary breaker as Alice."""
    row = Chat.objects.get(pk=uuid.UUID(chat))
    pauses.reset_breaker(chat=row, actor="user:1", now=timezone.now())


def remove_bytes(*, hours: float) -> int:
    """Delete the bytes of files whose removal is due after some hours."""
    return storage.remove_due_bytes(now=timezone.now() + timedelta(hours=hours))


def verify() -> list[str]:
    """The first break of every chain of the ledger."""
    return [
        f"{found.scope} row {found.seq}: {found.reason}" for found in ledger.find_ledger_breaks()
    ]


COMMANDS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        prepare,
        new_chat,
        post,
        stop_turn,
        deliver,
        begin_again,
        sweep,
        save_account,
        move_account,
        forget_limit,
        fold_early,
        govern,
        evaluate,
        count_chats,
        change_model,
        allow_tools,
        choose_skill,
        unsound,
        import_chat,
        rest,
        reset_breaker,
        remove_bytes,
        verify,
    )
}


def answer(line: str) -> dict[str, Any]:
    """The result of one request, or the code and message of its refusal."""
    name, arguments = json.loads(line)
    close_old_connections()
    try:
        return {"result": COMMANDS[name](**arguments)}
    except Refusal as refusal:
        return {"refusal": refusal.code, "sentence": refusal.sentence}
    finally:
        close_old_connections()


for request in sys.stdin:
    sys.stdout.write(json.dumps(answer(request)) + "\n")
    sys.stdout.flush()
