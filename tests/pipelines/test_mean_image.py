import numpy as np
import pytest

from pipelines import read_mean_image


def varint(number):
    content = b""
    while number > 127:
        content += bytes([number % 128 + 128])
        number //= 128
    return content + bytes([number])


def binaryproto(planes):
    """Caffe's BlobProto, written byte by byte: fields 1 to 4 the shape, 5 the floats."""
    floats = planes.astype("<f4").tobytes()
    shape = b"".join(bytes([8 * i]) + varint(n) for i, n in enumerate((1, *planes.shape), 1))
    return shape + b"\x2a" + varint(len(floats)) + floats


def test_reads_the_file_of_caffe_red_first(rng, tmp_path):
    planes = rng.uniform(0, 255, (3, 5, 200)).astype(np.float32)  # blue, green, red
    (tmp_path / "mean.binaryproto").write_bytes(binaryproto(planes))
    mean = read_mean_image(tmp_path / "mean.binaryproto")
    assert (mean.shape, mean.dtype) == ((5, 200, 3), np.float32)
    for channel, plane in enumerate((2, 1, 0)):
        np.testing.assert_array_equal(mean[:, :, channel], planes[plane])


def test_reads_an_array_of_numpy_as_it_is(rng, tmp_path):
    expected = rng.uniform(0, 255, (4, 5, 3))
    np.save(tmp_path / "mean.npy", expected)
    np.testing.assert_array_equal(read_mean_image(tmp_path / "mean.npy"), np.float32(expected))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("mean.npy", b"no array", "mean.npy cannot be read .the magic string is not correct"),
        ("mean.npy", b"PK of an archive", "mean.npy cannot be read"),
        ("mean.binaryproto", b"\xff" * 9, "mean.binaryproto cannot be read"),
        ("mean.binaryproto", binaryproto(np.zeros((3, 2, 2)))[:-4], "cannot be read"),
        ("mean.npz", b"", r"a file .npy or .binaryproto. Received: mean_image=.*mean.npz"),
    ],
)
def test_rejects_a_file_without_a_mean_image(name, content, message, tmp_path):
    with pytest.raises((FileNotFoundError, ValueError), match=f"There is no .*{name}|{message}"):
        read_mean_image(tmp_path / name)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_mean_image(tmp_path / name)
