import pytest

from tfdml.serving.search.settings import Search


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("port", -1, "`port` must be from 0 to 65535. Received: port=-1"),
        ("port", 65536, "`port` must be from 0 to 65535"),
        ("upload_megabytes", 0, "`upload_megabytes` must be > 0"),
        ("upload_megabytes", 1025, "`upload_megabytes` must be at most 1024"),
        ("neighbours", 0, "`neighbours` must be from 1 to 200"),
        ("neighbours", 201, "`neighbours` must be from 1 to 200"),
        ("rerank", -1, "`rerank` must be >= 0"),
    ],
)
def test_refuses_what_is_out_of_range(name, value, message):
    with pytest.raises(ValueError, match=message):
        Search("model", "images", **{name: value})


def test_takes_the_ends_of_the_ranges():
    for changed in ({"port": 0}, {"port": 65535}, {"rerank": 0}, {"neighbours": 200}):
        Search("model", "images", **changed)
