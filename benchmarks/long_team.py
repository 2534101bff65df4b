"""The cost of a long team chat: 1,000 and 100,000 messages, measured alternately.

`python -m benchmarks.long_team` prints the medians of adding a message, of the context that a
client requests, and of the prompt of an agent's turn. It also prints the ratio of the long chat to
the short one (goal: 1.2 at most). Both chats are in one database, so that noise affects both.
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from benchmarks.prepared import create_tables

SIZES = (1_000, 100_000)
TIMES = 200
GOAL = 1.2
PLANNER = {"roleId": "planner", "roleName": "Planner", "type": "ai"}


def fill(size: int) -> dict[str, Callable[[], object]]:
    """Create a team chat with this many messages, and the functions to measure."""
    from django.utils import timezone

    from benchmarks.compose import fill as chat_of
    from chats.models import Agent, Chat, Team, TeamVersion, Turn
    from chats.prompt import composition
    from chats.prompt.tokenizer import O200kCounter
    from chats.teams import conversation

    turn = chat_of(size)
    now = timezone.now()
    owner = turn.branch.chat.owner
    team = Team.objects.create(owner=owner, created_at=now)
    version = TeamVersion.objects.create(team=team, number=1, name="Team", created_at=now)
    agents = [
        Agent.objects.create(version=version, place=place, role_id=name.lower(), name=name)
        for place, name in enumerate(("Planner", "Critic", "Writer"))
    ]
    team.current = version
    team.save()
    chat: Any = Chat.objects.select_related("active_branch", "owner").get(pk=turn.branch.chat_id)
    Chat.objects.filter(pk=chat.pk).update(team=team)
    Turn.objects.filter(pk=turn.pk).update(agent=agents[0])
    asked = Turn.objects.select_related("branch__chat", "model", "trigger").get(pk=turn.pk)
    # Clients may add messages only while no reply is running.
    Turn.objects.filter(pk=turn.pk).update(status="completed", finished_at=now)
    counter = O200kCounter()
    said = {"content": "One more thing.", "speaker": PLANNER, "routing": {}}

    def add() -> object:
        here = Chat.objects.select_related("active_branch", "owner").get(pk=chat.pk)
        return conversation.add_message(
            user=owner, chat=here, data=said, counter=counter, now=timezone.now()
        )

    def context() -> object:
        here = Chat.objects.select_related("active_branch", "owner").get(pk=chat.pk)
        return conversation.assemble_agent_context(
            chat=here, agent=conversation.RequestedAgent(agent_id="critic")
        )

    def prompt() -> object:
        return composition.compose_prompt(turn=asked, counter=counter)

    return {"prompt of an agent": prompt, "context for a program": context, "adding": add}


def measure(ways: dict[int, dict[str, Callable[[], object]]]) -> dict[str, dict[int, float]]:
    """Return the median milliseconds of each operation in each chat."""
    found: dict[str, dict[int, float]] = {}
    for name in ways[SIZES[0]]:
        taken: dict[int, list[float]] = {size: [] for size in ways}
        for _ in range(TIMES):
            for size, things in ways.items():
                begun = time.perf_counter()
                things[name]()
                taken[size].append((time.perf_counter() - begun) * 1000)
        found[name] = {size: statistics.median(values) for size, values in taken.items()}
    return found


def main() -> None:
    """Measure and print; exit with 1 if a ratio exceeds the goal."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PALIMPSEST_DATA"] = folder
        os.environ["DJANGO_SETTINGS_MODULE"] = "project.settings"
        import django

        django.setup()
        from django.utils import timezone

        from chats.ground import queue
        from contextpolicy.presets import replace_demo_policy, seed_policies
        from project.seed import seed_demo_model

        create_tables()
        seed_policies(now=timezone.now())
        replace_demo_policy(actor="system", now=timezone.now())
        seed_demo_model()
        queue.publish_task = queue.keep_here
        found = measure({size: fill(size) for size in SIZES})
    small, large = SIZES
    worst = 0.0
    for name, taken in found.items():
        ratio = taken[large] / taken[small]
        worst = max(worst, ratio)
        sys.stdout.write(
            f"{name:<22} {taken[small]:7.2f} ms, {taken[large]:7.2f} ms, ratio {ratio:.2f}\n"
        )
    sys.exit(int(worst > GOAL))


if __name__ == "__main__":
    main()
