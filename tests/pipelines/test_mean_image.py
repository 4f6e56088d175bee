import numpy as np
import pytest

from pipelines import read_mean_image


def varint(number):
    content = b""
    while number > 127:
        content += bytes([number % 128 + 128])
        number //= 128
    return content + bytes([number])


def binaryproto(planes, shape_of="num"):
    """Caffe's BlobProto, written byte by byte: fields 1 to 4 or 7 the shape, 5 the floats."""
    floats = planes.astype("<f4").tobytes()
    data = b"\x2a" + varint(len(floats)) + floats
    shape = (1, *planes.shape)
    if shape_of == "num":
        return b"".join(bytes([8 * i]) + varint(n) for i, n in enumerate(shape, 1)) + data
    dims = b"".join(map(varint, shape))
    inner = b"\x0a" + varint(len(dims)) + dims
    return data + b"\x3a" + varint(len(inner)) + inner


@pytest.mark.parametrize("options", [{}, {"shape_of": "dim"}])
def test_reads_the_file_of_caffe_red_first(options, rng, tmp_path):
    planes = rng.uniform(0, 255, (3, 5, 200)).astype(np.float32)  # blue, green, red
    (tmp_path / "mean.binaryproto").write_bytes(binaryproto(planes, **options))
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
        ("mean.binaryproto", b"", r"finite floats. Received: shape=\(0, 0, 0\)"),
        ("mean.npz", b"", r"a file .npy or .binaryproto. Received: mean_image=.*mean.npz"),
    ],
)
def test_rejects_a_file_without_a_mean_image(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_mean_image(tmp_path / name)


@pytest.mark.parametrize(
    "array", [np.zeros((4, 4)), np.zeros((4, 4, 3), int), np.full((4, 4, 3), np.inf)]
)
def test_rejects_an_array_that_is_none(array, tmp_path):
    np.save(tmp_path / "mean.npy", array)
    with pytest.raises(ValueError, match=r"must hold \(height, width, channels\) finite floats"):
        read_mean_image(tmp_path / "mean.npy")


def test_names_a_file_that_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"There is no .*mean.npy"):
        read_mean_image(tmp_path / "mean.npy")
