import convert_mean_image
import numpy as np
import pytest


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


def test_converts_the_file_of_caffe_red_first(rng, tmp_path):
    planes = rng.uniform(0, 255, (3, 5, 200)).astype(np.float32)  # blue, green, red
    (tmp_path / "mean.binaryproto").write_bytes(binaryproto(planes))
    mean = convert_mean_image.convert(tmp_path / "mean.binaryproto")
    assert (mean.shape, mean.dtype) == ((5, 200, 3), np.float32)
    for channel, plane in enumerate((2, 1, 0)):
        np.testing.assert_array_equal(mean[:, :, channel], planes[plane])


@pytest.mark.parametrize("content", [b"\xff" * 9, binaryproto(np.zeros((3, 2, 2)))[:-4]])
def test_rejects_a_file_without_a_mean_image(content, tmp_path):
    (tmp_path / "mean.binaryproto").write_bytes(content)
    with pytest.raises(ValueError, match="is not a complete"):
        convert_mean_image.convert(tmp_path / "mean.binaryproto")
