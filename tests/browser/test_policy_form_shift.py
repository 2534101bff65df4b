"""The policy form has no layout shifts while it loads."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.desk import Person
from tests.browser.product import Product
from tests.support.browser_chats import PHONE
from tests.support.browser_policies import ADD_POLICY, POLICY_LIST
from tests.support.layout_shifts import OBSERVE_SHIFTS

# A "good" value by https://web.dev/articles/cls is at most 0.1; this form stays below half of it.
MOST_SHIFT = 0.05
# As on a slow phone.
SLOWER = 4


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.in_turn
def test_the_policy_form_does_not_shift(
    open_tab: Callable[..., Person], product: Product, signed_in: Any, width: int
) -> None:
    options: dict[str, Any] = PHONE if width == 390 else {}
    person = open_tab(product, storage_state=signed_in, **options)
    page = person.page
    page.context.add_init_script(OBSERVE_SHIFTS)
    slow = page.context.new_cdp_session(page)
    slow.send("Emulation.setCPUThrottlingRate", {"rate": SLOWER})
    person.open(POLICY_LIST)
    stored = page.locator("#result_list th a").first.get_attribute("href")
    for path in (ADD_POLICY, str(stored)):
        person.open(path)
        page.wait_for_timeout(2_500)
        for place in (0.3, 0.6, 1.0):
            page.evaluate(f"scrollTo(0, document.body.scrollHeight * {place})")
            page.wait_for_timeout(300)
        shifts: list[str] = person.value("shifts")
        moved = sum(float(shift.split(":")[0]) for shift in shifts)
        assert moved <= MOST_SHIFT, f"{path}: {moved:.3f}\n" + "\n".join(shifts)
