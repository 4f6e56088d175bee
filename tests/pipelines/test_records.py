import numpy as np
import pytest
import tensorflow as tf

from pipelines.records import is_record, read, read_all, read_batches, record_path


@pytest.fixture
def files(tmp_path, rng):
    contents = [rng.bytes(500), rng.bytes(300)]
    paths = [tmp_path / "a:1.tfrecord", tmp_path / "ü b.tfrecord"]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return paths, contents


def test_a_record_is_the_bytes_at_its_offset(files):
    (first, second), (one, two) = files
    places = [(first, one, 0, 500), (second, two, 299, 1), (first, one, 17, 0), (second, two, 5, 9)]
    paths = [record_path(path, offset, length) for path, _, offset, length in places]
    expected = [content[offset : offset + length] for _, content, offset, length in places]
    assert all(map(is_record, paths))
    assert read_all(paths).tolist() == expected
    assert [read(path) for path in paths] == expected
    batches = tf.data.Dataset.from_tensors(tf.constant(paths)).map(read_batches)
    assert next(batches.as_numpy_iterator()).tolist() == expected


def test_other_paths_are_files(files, tmp_path):
    (first, _), (one, _) = files
    for path in (first, str(first), tmp_path / "a.tfrecord:1", "a.jpg:1:2"):
        assert not is_record(path)
    assert read(first) == one


@pytest.mark.parametrize(("offset", "length"), [(0, 501), (500, 1), (10**9, 3)])
def test_a_file_that_ends_before_its_record_is_an_error(files, offset, length):
    with pytest.raises(OSError, match=f"a:1.tfrecord ends before byte {offset + length}"):
        read(record_path(files[0][0], offset, length))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.tfrecord"):
        read_all(np.array([record_path(tmp_path / "none.tfrecord", 0, 1)]))
