import numpy as np
import pytest

from tfdml.client.archive import save_embeddings


def test_what_is_written_is_read(tmp_path, rng):
    rows, path = rng.normal(size=(2, 3)).astype("float32"), tmp_path / "new" / "embeddings.npz"
    save_embeddings(path, ["a.jpg", "ü.jpg"], rows, model="embedder", version=7)
    with np.load(path) as archive:
        assert archive["paths"].tolist() == ["a.jpg", "ü.jpg"]
        np.testing.assert_array_equal(archive["embeddings"], rows)
        assert archive["embeddings"].dtype == np.float32
        assert (archive["model"].item(), archive["version"].item()) == ("embedder", 7)


def test_a_crash_leaves_the_file_before(tmp_path, monkeypatch):
    path, rows = tmp_path / "embeddings.npz", np.zeros((1, 2), "float32")
    save_embeddings(path, ["a.jpg"], rows, model="embedder", version=1)
    before = path.read_bytes()

    def half_written(file, **_):
        file.write(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(np, "savez", half_written)
    with pytest.raises(OSError, match="No space left"):
        save_embeddings(path, ["b.jpg"], rows, model="embedder", version=2)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
