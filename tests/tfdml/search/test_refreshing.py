import numpy as np
import pytest

from tfdml.search.catalogue import Catalogue, Entry, LeftOut
from tfdml.search.images import Stamp, image_files
from tfdml.search.refreshing import changes, embedded

OLD, NEW = Stamp(1, 1), Stamp(1, 2)


def test_states_what_is_new_gone_and_changed():
    names = ("kept.png", "changed.png", "gone.png")
    catalogue, _ = Catalogue().with_more(
        [Entry(name, OLD, "PNG", 1, 1) for name in names],
        {name: LeftOut(OLD, "broken") for name in ("bad.png", "mended.png", "bad and gone.png")},
    )
    files = dict.fromkeys(("kept.png", "bad.png"), OLD)
    files |= dict.fromkeys(("changed.png", "mended.png", "new.png"), NEW)
    gone, cleared, new = changes(catalogue, files)
    assert gone == [1, 2]
    assert sorted(cleared) == ["bad and gone.png", "mended.png"]
    assert new == dict.fromkeys(("changed.png", "mended.png", "new.png"), NEW)
    assert not any(changes(catalogue.without([1, 2], cleared), {"kept.png": OLD, "bad.png": OLD}))


def test_embeds_files_and_says_why_some_are_left_out(model, folder, colours, encoded):
    (folder / "text.png").write_bytes(b"no picture")
    (folder / "half.png").write_bytes(encoded((1, 2, 3))[:60])
    (folder / "vanished.png").write_bytes(encoded((1, 2, 3)))
    files = image_files(folder.resolve())
    (folder / "vanished.png").unlink()
    batches = list(embedded(model, folder.resolve(), files))
    assert all(len(batch) <= model.batch_size for batch in batches)
    reported = {name: value for batch in batches for name, value in batch.items()}
    assert set(reported) == {*colours, "text.png", "half.png"}
    for name, colour in colours.items():
        entry, row = reported[name]
        assert entry == Entry(name, files[name], "PNG", 40, 30)
        np.testing.assert_allclose(row, colour)
    assert "must be a complete" in reported["text.png"].cause
    assert reported["text.png"].stamp == files["text.png"]
    assert reported["half.png"].stamp == files["half.png"]


def test_a_file_that_may_not_be_opened_is_tried_again(model, folder, monkeypatch):
    from tfdml.search import refreshing

    def rejected(*_):
        raise PermissionError(13, "Permission denied")

    files = image_files(folder.resolve())
    monkeypatch.setattr(refreshing, "read", rejected)
    [reported] = embedded(model, folder.resolve(), {"blue.png": files["blue.png"]})
    assert reported["blue.png"].cause == "Permission denied"
    catalogue, _ = Catalogue().with_more([], reported)
    assert "blue.png" in changes(catalogue, files)[2]


@pytest.mark.parametrize(("most", "count"), [(1, 5), (10**9, 1)])
def test_batches_hold_few_bytes(most, count, model, folder, colours, monkeypatch):
    from tfdml.search import refreshing

    monkeypatch.setattr(refreshing, "_BATCH_BYTES", most)
    model.batch_size = 100
    batches = list(embedded(model, folder.resolve(), image_files(folder.resolve())))
    assert sum(map(len, batches)) == len(colours)
    assert len(batches) == count
