"""Time to wait that an endpoint names."""

import pytest

from tasks.language_model.endpoint.refusals import read_retry_after


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2"}, 2.0),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
        ({}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": f"Thu, {'9' * 30} Jan 1970 00:00:00 GMT"}, None),
    ],
)
def test_headers_of_any_form_are_read(headers: dict[str, str], seconds: float | None) -> None:
    assert read_retry_after(headers) == seconds
