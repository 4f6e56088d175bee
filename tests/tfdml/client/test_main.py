"""The command, as users run it."""

import os
import shutil

import numpy as np
import programs
import pytest

from tfdml.client import __main__ as program


@pytest.fixture
def run(server):
    """Runs a command against a server: (exit code, standard output, standard error)."""

    def run(command, *arguments, model="embedder"):
        flags = ["--server", f"grpc://127.0.0.1:{server.grpc}", "--model", model]
        done = programs.run(program.main, command, *arguments, *flags, "--batch_size", 2, cwd=".")
        return done.code, done.out, done.err

    return run


def test_embeds_files_and_folders(run, served, contents, files, tmp_path):
    folder, out = tmp_path / "photos", tmp_path / "out" / "embeddings.npz"
    (folder / "inner").mkdir(parents=True)
    files[1].rename(folder / "inner" / "b.PNG")
    files[2].rename(folder / "a.jpeg")
    (folder / "notes.txt").write_text("no image")
    code, said, errors = run("embed", files[0], folder, files[4], "--out", out)
    assert (code, errors) == (0, "")
    for part in ("4 embeddings", "version 2 of embedder", str(out)):
        assert part in said
    with np.load(out) as archive:
        paths = [files[0], folder / "a.jpeg", folder / "inner" / "b.PNG", files[4]]
        assert archive["paths"].tolist() == list(map(str, paths))
        expected = served.embed([contents[i] for i in (0, 2, 1, 4)])
        np.testing.assert_allclose(archive["embeddings"], expected, atol=1e-5)
        assert archive["embeddings"].dtype == np.float32
        assert (archive["model"].item(), archive["version"].item()) == ("embedder", 2)


def test_a_version_or_a_label_is_asked_and_a_file_replaced_only_if_told(
    run, served, contents, files, tmp_path
):
    out = tmp_path / "embeddings.npz"
    out.write_text("precious")
    code, _, errors = run("embed", *files, "--out", out)
    assert (code, out.read_text()) == (2, "precious")
    assert f"{out} exists: choose another --out, or give --overwrite" in errors
    expected = served.embed(contents, version=1)
    for flags in (("--version", 1), ("--label", "stable")):
        code, said, _ = run("embed", *files, "--out", out, "--overwrite", *flags)
        assert code == 0
        assert "by version 1 of embedder" in said
        np.testing.assert_allclose(np.load(out)["embeddings"], expected, atol=1e-5)


def test_prints_the_class_of_each_image_or_none(run, served, contents, files):
    code, said, errors = run("classify", *files)
    assert (code, errors) == (0, "")
    expected = served.decision(served.embed(contents))
    lines = said.splitlines()
    assert ["none of these" not in line for line in lines] == expected["known"].tolist()
    assert [float(line.split()[0]) for line in lines] == pytest.approx(
        expected["probability"].tolist(), abs=1e-3
    )


def test_an_image_that_cannot_be_read_fails_or_is_left_out(run, files, tmp_path):
    files[1].write_bytes(b"no image")
    out = tmp_path / "embeddings.npz"
    code, _, errors = run("embed", *files, "--out", out)
    assert (code, out.exists()) == (2, False)
    assert f"{files[1]} cannot be read: the server" in errors
    assert errors.count("\n") == 1
    with pytest.warns(UserWarning, match=r"1\.img cannot be read: the server"):
        code, said, _ = run("embed", *files, "--out", out, "--skip_invalid")
    assert (code, said[:12]) == (0, "4 embeddings")
    assert np.load(out)["paths"].tolist() == [str(files[i]) for i in (0, 2, 3, 4)]
    with pytest.warns(UserWarning, match="cannot be read"):
        code, _, errors = run("embed", files[1], "--out", tmp_path / "x.npz", "--skip_invalid")
    assert code == 2
    assert "must be readable" in errors


def test_files_and_folders_without_images_are_named_first(run, files, tmp_path):
    empty = tmp_path / "empty"
    (empty / ".thumbnails").mkdir(parents=True)
    (empty / "album.jpg").mkdir()
    os.mkfifo(empty / "pipe.jpg")  # reading it would wait for ever
    for name in ("._a.png", ".thumbnails/a.png"):
        shutil.copy(files[0], empty / name)
    for path, said in ((tmp_path / "x.png", "there is no"), (empty, "must hold images")):
        code, _, errors = run("embed", *files, path)
        assert code == 2
        assert str(path) in errors
        assert said in errors


def test_states_the_state_of_the_versions(run):
    code, said, _ = run("status")
    assert (code, said) == (0, "version 2 AVAILABLE\nversion 1 AVAILABLE\n")
    code, _, errors = run("status", model="nobody")
    assert code == 2
    assert "NOT_FOUND" in errors


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["embd"], "Did you mean 'embed'?"),
        (["embed"], "images"),
        (["embed", "x.jpg", "--modle", "m"], "Did you mean --model?"),
        (["status", "--server", "host"], "`address` must be"),
        (["embed", __file__, "--out", ".", "--overwrite"], "`out` must be a file. . is a folder"),
    ],
)
def test_mistakes_get_one_sentence(arguments, said):
    done = programs.run(program.main, *arguments, cwd=".")
    assert said in done.sentence
    assert done.err.count("\n") == 1
