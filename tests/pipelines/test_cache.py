"""The command `python -m pipelines.cache`, alone and with `pipelines.check`."""

import json

import pytest
from small_runs import write_images

from pipelines import cache


def test_the_command_writes(tmp_path, capsys):
    photos = write_images(tmp_path / "photos", dict.fromkeys("abcd", 2))
    data = ["--dataset", "folder", "--data_dir", str(photos)]
    cache.main([*data, "--size", "64", "--keep_aspect", "--out", str(tmp_path / "cache")])
    assert "8 images, " in capsys.readouterr().out
    settings = json.loads((tmp_path / "cache" / "manifest.json").read_text())["settings"]
    assert (settings["warp_size"], settings["keep_aspect"], settings["quality"]) == (64, True, 95)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dataset", "cub200"], "the following arguments are required: --out"),
        (["--dataset", "cub20", "--out", "y"], "Unknown dataset 'cub20'. Did you mean 'cub200'?"),
        (["--dataset", "digits", "--out", "x" * 256], "File name too long"),
        (["--quality", "90", "--lossless"], "--lossless: not allowed with argument --quality"),
    ],
)
def test_the_command_rejects_with_one_sentence(arguments, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        cache.main(arguments)
    assert stopped.value.code == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("pipelines.cache: error: ")
    assert message in line


def test_folders_of_the_home_folder_are_taken(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ann")
    monkeypatch.setenv("USERPROFILE", "/home/ann")
    given = cache.parse(["--dataset=folder", "--data_dir=~/photos", "--boxes=~/b.csv", "--out=~/c"])
    folders = [given.data_dir, given.boxes, given.out]
    assert folders == ["/home/ann/photos", "/home/ann/b.csv", "/home/ann/c"]
