import pytest

from tfdml.search.settings import Search


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("port", -1, "`port` .*Received: port=-1"),
        ("port", 65536, "`port` .*Received: port=65536"),
        ("upload_megabytes", 0, "`upload_megabytes` .*Received: upload_megabytes=0"),
        ("upload_megabytes", 1025, "`upload_megabytes` .*Received: upload_megabytes=1025"),
        ("neighbours", 0, "`neighbours` .*Received: neighbours=0"),
        ("neighbours", 201, "`neighbours` .*Received: neighbours=201"),
        ("rerank", -1, "`rerank` .*Received: rerank=-1"),
    ],
)
def test_refuses_what_is_out_of_range(name, value, message):
    with pytest.raises(ValueError, match=message):
        Search("model", "images", **{name: value})


def test_takes_the_ends_of_the_ranges():
    for changed in ({"port": 0}, {"port": 65535}, {"rerank": 0}, {"neighbours": 200}):
        Search("model", "images", **changed)
