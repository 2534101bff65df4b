"""The palette that is on every page shows nothing of that page."""

import pytest
from django.test import Client


@pytest.mark.parametrize("address", ["/chats/018f0000-0000-7000-8000-000000000001/", "/search?q=x"])
def test_it_is_empty_until_somebody_asks(address: str, page: Client) -> None:
    html = page.get(address).content.decode()
    palette = html.partition('id="palette"')[2].partition("</dialog>")[0]
    status = palette.partition('role="status">')[2].partition("</p>")[0]
    assert palette
    assert status.strip() == ""
