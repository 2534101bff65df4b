"""Forms of pages and of the admin that a script sends once, and keeps until they are processed."""

from playwright.sync_api import expect

from tests.browser.desk import Person
from tests.browser.test_failed_requests import PASSWORD, only_expected


def test_a_page_that_the_admin_answers_with_is_not_asked_for_again(admin: Person) -> None:
    admin.open("/admin/auth/user/add/")
    posts: list[str] = []
    admin.page.on("request", lambda sent: sent.method == "POST" and posts.append(sent.url))
    admin.page.locator("#id_username").fill("twice")
    admin.page.locator("#id_password1").fill(PASSWORD)
    admin.page.locator("#id_password2").fill("another one of some length")
    admin.page.locator("#id_password2").press("Enter")
    expect(admin.page.locator(".errorlist").first).to_be_visible()
    expect(admin.page.locator("#id_username")).to_have_value("twice")
    assert len(posts) == 1
    for field in ("password1", "password2"):
        admin.page.locator(f"#id_{field}").fill(PASSWORD)
    admin.page.locator("#id_password2").press("Enter")
    expect(admin.page.locator(".success")).to_be_visible()
    assert len(posts) == 2
    only_expected(admin)


def test_a_preview_of_a_policy_is_asked_for_once(admin: Person) -> None:
    admin.open("/admin/contextpolicy/contextpolicy/add/")
    posts: list[str] = []
    admin.page.locator("#id_name").fill("Looked at")
    admin.page.on("request", lambda sent: sent.method == "POST" and posts.append(sent.url))
    admin.page.locator("#id_name").press("Enter")
    expect(admin.page.locator("#policy-editor")).to_be_visible()
    admin.page.wait_for_load_state("networkidle")
    expect(admin.page.locator("#id_name")).to_have_value("Looked at")
    assert len(posts) == 1
    # The controls of the new page work.
    with admin.page.expect_response(lambda given: given.request.method == "POST"):
        admin.page.locator("#policy-preview button[name=_preview]").click()
    only_expected(admin)
