"""The time from a keystroke to the results of the palette, in Chromium, with many messages.

`python -m benchmarks.palette [--words 60]` runs after `python -m benchmarks.search --only index`
with the same PALIMPSEST_DATA, or the same database at PALIMPSEST_TEST_DATABASE_URL. It serves that
data, opens the palette as its first person after the start, and types prefixes of common and rare
words, with 40 ms between the letters. It prints the time from the last letter until the results are
drawn. It fails if the 95th percentile is over 150 ms. The first prefixes, for which the index
is not cached yet, are printed separately.
"""

import argparse
import os
import random
import statistics
import sys
import time
from collections.abc import Sequence
from importlib import import_module

from playwright.sync_api import Page, sync_playwright

from benchmarks.search import RANKS, quantile, say
from tests.browser.product import Product
from tests.faults.programs import needed_browser

LIMIT = 150.0
PAUSE = 100
# Seconds until an instance has started everything, and the number of uncached prefixes.
STARTS = 15
FIRST = 10
WATCH = """
window.took = 0;
const box = document.querySelector("#palette-question");
const found = () => document.querySelector("#palette-found");
box.addEventListener("input", () => { window.typedAt = performance.now(); window.took = null; });
new MutationObserver(() => {
  if (window.took !== null || found().dataset.question !== box.value.trim()) return;
  requestAnimationFrame(() => { window.took = performance.now() - window.typedAt; });
}).observe(box.closest("dialog"), { subtree: true, childList: true, attributes: true });
"""


def main(arguments: Sequence[str]) -> int:
    """Serve, type, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--words", type=int, default=60)
    given = parser.parse_args(arguments)
    env = {"PALIMPSEST_DATA": os.environ["PALIMPSEST_DATA"]}
    if url := os.environ.get("PALIMPSEST_TEST_DATABASE_URL"):
        env["DATABASE_URL"] = url
    os.environ.update(env, DJANGO_SETTINGS_MODULE="project.settings")
    import django

    django.setup()
    cookie = session()
    product = Product(**env)
    try:
        product.printed_link(seconds=120)
        time.sleep(STARTS)
        times = measured(product.url, cookie, beginnings(FIRST + given.words))
    finally:
        product.close()
    first, rest = times[:FIRST], times[FIRST:]
    late = quantile(rest, 0.95)
    say(f"first {len(first)}: {statistics.median(first):.0f} ms, {max(first):.0f} at most")
    say(f"{len(rest)} beginnings: {statistics.median(rest):.0f} ms, p95 {late:.0f}")
    return int(late > LIMIT)


def measured(url: str, cookie: tuple[str, str], texts: Sequence[str]) -> list[float]:
    """Type each text into the palette; return the time of each."""
    options = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=needed_browser(), args=options)
        context = chromium.new_context()
        context.add_cookies([{"name": cookie[0], "value": cookie[1], "url": url}])
        page = context.new_page()
        page.goto(f"{url}/search")
        page.keyboard.press("Control+k")
        page.evaluate(WATCH)
        typed(page, "warm up")
        return [typed(page, text) for text in texts]


def session() -> tuple[str, str]:
    """The name and the value of the person's cookie."""
    from django.conf import settings
    from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
    from django.contrib.auth.models import User
    from django.db import connection

    person = User.objects.get(username="searcher-0")
    kept = import_module(settings.SESSION_ENGINE).SessionStore()
    kept[SESSION_KEY] = str(person.pk)
    kept[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]
    kept[HASH_SESSION_KEY] = person.get_session_auth_hash()
    kept.save()
    connection.close()
    return settings.SESSION_COOKIE_NAME, str(kept.session_key)


def beginnings(number: int) -> list[str]:
    """Return prefixes of one word or two, rare and common."""
    from benchmarks import bulk

    words = bulk.vocabulary()
    chance = random.Random(11)  # noqa: S311  # the same beginnings in each run
    found = []
    for place in range(number):
        kind = list(RANKS)[place % len(RANKS)]
        last = words[chance.randint(*RANKS[kind])]
        first = f"{words[chance.randint(*RANKS['usual'])]} " if place % 2 else ""
        found.append(first + last[: max(len(last) - 1, 3)])
    return found


def typed(page: Page, text: str) -> float:
    """Milliseconds from the last letter of a text until its results are drawn."""
    page.fill("#palette-question", "")
    drawn(page)
    page.keyboard.type(text, delay=PAUSE)
    return drawn(page)


def drawn(page: Page) -> float:
    """Wait until the results of the last query are drawn; return the milliseconds."""
    while (took := page.evaluate("window.took")) is None:
        page.wait_for_timeout(20)
    return float(took)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
