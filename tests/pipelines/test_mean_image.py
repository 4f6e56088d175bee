import numpy as np
import pytest

from pipelines import read_mean_image


def test_reads_an_array_of_numpy_as_it_is(rng, tmp_path):
    expected = rng.uniform(0, 255, (4, 5, 3))
    np.save(tmp_path / "mean.npy", expected)
    np.testing.assert_array_equal(read_mean_image(tmp_path / "mean.npy"), np.float32(expected))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("mean.npy", b"no array", "mean.npy cannot be read .the magic string is not correct"),
        ("mean.npy", b"PK of an archive", "mean.npy cannot be read"),
        ("mean.binaryproto", b"", r"convert_mean_image.py .*: mean_image=.*mean.binaryproto"),
    ],
)
def test_rejects_a_file_without_a_mean_image(name, content, message, tmp_path):
    with pytest.raises((FileNotFoundError, ValueError), match=f"There is no .*{name}|{message}"):
        read_mean_image(tmp_path / name)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_mean_image(tmp_path / name)
