"""The policy pages of the administration in the browser."""

from playwright.sync_api import Locator, Page

POLICY_LIST = "/admin/contextpolicy/contextpolicy/"
ADD_POLICY = f"{POLICY_LIST}add/"


def find_strategy_card(page: Page, strategy: str) -> Locator:
    """The card that chooses a strategy."""
    return page.locator(f"label.policy-card:has([value='{strategy}'])")
