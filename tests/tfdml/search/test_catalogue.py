import pytest

from tfdml.search.catalogue import Catalogue, Entry, LeftOut
from tfdml.search.files import Stamp

STAMP = Stamp(10, 2**60 + 1)
ENTRIES = [Entry(name, STAMP, "PNG", 4, 3) for name in ("a.png", "ü/b\udcff.png")]


def test_ids_are_never_given_twice():
    catalogue, ids = Catalogue().with_more(ENTRIES, {})
    assert ids == [0, 1]
    catalogue, ids = catalogue.without([0, 1]).with_more(ENTRIES[:1], {})
    assert ids == [2]
    assert catalogue.entries == {2: ENTRIES[0]}
    assert catalogue.with_more(ENTRIES[1:], {})[1] == [3]


def test_a_change_leaves_the_catalogue_before_it_alone():
    left_out = {"c.png": LeftOut(STAMP, "broken")}
    before, _ = Catalogue().with_more(ENTRIES, left_out)
    after = before.without([0], ["c.png"])
    assert (set(before.entries), set(after.entries)) == ({0, 1}, {1})
    assert (before.left_out, after.left_out) == (left_out, {})


def test_comes_back_from_its_text():
    catalogue, _ = Catalogue().with_more(ENTRIES, {"c.png": LeftOut(STAMP, "broken")})
    again = Catalogue.from_json(catalogue.without([0]).to_json())
    assert again == catalogue.without([0])
    assert again.entries[1].stamp.modified == 2**60 + 1
    assert again.left_out["c.png"].cause == "broken"


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"entries": {"x": []}, "left_out": {}, "next_id": 0}', '{"entries": 3}'],
)
def test_refuses_another_text(text):
    with pytest.raises(ValueError, match=r"catalogue .*cannot be read"):
        Catalogue.from_json(text)
