"""What train.py rejects before it trains, in a sentence."""

import pathlib

import programs
import pytest
from small_runs import SMALL, TWO_STEPS, rejection, write_images

from tfdml.programs import train

ROOT = pathlib.Path(__file__).parents[3]

# Flags, of which NO_DATA, HERE and WRONG stand for others, and words of the rejection.
STAND_FOR = {
    "NO_DATA": ["--dataset", "folder", "--data_dir", "missing"],
    "HERE": ["--dataset", "folder", "--data_dir", str(ROOT)],
    "WHOLE": ["--dataset", "folder", "--data_dir", str(ROOT), "--skip_invalid"],  # takes minutes
    "DIGITS": ["--dataset", "digits"],
    "GROUPS": ["--sampler", "groups"],
    "PAIRS": ["--sampler", "pairs"],
    "HALVES": ["--loss", "contrastive", "--loss_options.pairs", "halves"],
    "IMAGENET": ["--weights", "imagenet", "--backbone", "mobilenet_v2"],
    "WRONG": ["--loss_options.margin", "-1"],  # which takes TensorFlow to see
    "README": [str(ROOT / "README.md")],
    "MISSPELT": [str(ROOT / "tests" / "misspelt.yaml")],
}
NESTED = """--loss_options.similarity '{"dropout": ...}'"""
REJECTED = [
    ("--loss liftd", ["loss 'liftd'", "'lifted'"]),
    ("--dataset glyps", ["dataset 'glyps'", "'glyphs'"]),
    ("--backbone smal_cnn", ["backbone 'smal_cnn'", "'small_cnn'"]),
    ("--lss lifted", ["--lss", "--loss?"]),
    ("--loss_options null", ["`loss_options`", "Received: loss_options=None"]),
    ("--steps 1e3", ["`steps`", "integer", "Received: steps=1e3"]),
    ("--config MISSPELT", ["misspelt.yaml: ", "'stpes'", "--steps?"]),
    ("--config missing.yaml", ["missing.yaml"]),
    ("--loss_options.similarity.dropout 0", ["--loss_options.similarity.dropout", NESTED]),
    ("--loss_options.magrin 1 NO_DATA", ["loss 'lifted'", "'magrin'", "'margin'"]),
    ("--loss memory NO_DATA", ["loss 'memory' requires the option 'base'"]),
    ("--dataset folder --data_dir .", ["Run in another folder. Received: data_dir='.'"]),
    ("WRONG WHOLE", ["`margin`", "> 0", "Received: margin=-1"]),
    ("--augmentation.flp true NO_DATA", ["'flp'", "'flip'"]),
    ("GROUPS --sampler_options.evnly true NO_DATA", ["'groups'", "'evnly'", "'evenly'"]),
    ("PAIRS --sampler_options.hard_neighbours 3 NO_DATA", ["Received: hard_neighbours=3"]),
    ("--sampler_options.skip_duplicates no.csv NO_DATA", ["Received: skip_duplicates='no.csv'"]),
    ("DIGITS --sampler_options.skip_duplicates true", ["there twice are found among files"]),
    ("GROUPS --sampler_options.super_classes 0 NO_DATA", ["Received: super_classes=0"]),
    ("--sampler whole_classes DIGITS", ["the largest class + 2", "batch_size=128, largest="]),
    ("GROUPS DIGITS WRONG", ["`super_labels`"]),
    ("DIGITS --classes_per_batch 6", ["Received: classes_per_batch=6, classes=5"]),
    ("--embedding_dim null --levels 3 WHOLE", ["Received: embedding_dim=None, levels=3"]),
    ("HALVES WHOLE", ["`pairs` 'halves'", "sampler='balanced', hard_neighbours=False"]),
    ("--exit_multiplier 2 WHOLE", ["`exit_multiplier`", "Received: exit_multiplier=2.0"]),
    ("--pooling average+max WHOLE", ["small_cnn", "Received: pooling='average+max'"]),
    ("--sampler shuffled DIGITS --classes_per_batch 500", ["must not exceed", "batch_size=2000"]),
    (
        "PAIRS DIGITS --classes_per_batch 3 --images_per_class 5",
        ["a multiple of 2", "batch_size=15"],
    ),
    ("--skip_invalid true NO_DATA WRONG", ["there is no missing"]),
    ("--weights missing.h5 HERE", ["`weights`", "Received: weights='missing.h5'"]),
    ("--weights imagenet --backbone googlenet HERE", ["tools/convert_googlenet.py", "'imagenet'"]),
    ("IMAGENET DIGITS WRONG", ["3 channels", "Received: weights='imagenet', channels=1"]),
    ("--weights README --backbone googlenet HERE", ["be a converted .npz file", "tools/convert"]),
    ("DIGITS --backbone mobilenet_v2", ["Input size must be at least 32x32"]),
    ("--loss hdc DIGITS --levels 2", ["those of loss 'hdc', 3. Received: levels=2"]),
    ("--loss hdc DIGITS --backbone alexnet", ["has levels from 1 to 1. Received: levels=3"]),
    ("--loss hdc DIGITS --dropout [0.5,0.5]", ["must be one number, or one for each level"]),
    ("--tune frozen --sampler pairs", ["`sampler` must be left out with `tune` frozen"]),
    ("--tune frozen --steps 5", ["`steps` must be left out", "Received: steps=5, tune='frozen'"]),
    ("--tune head --embedding_dim null", ["`embedding_dim` must be a number for `tune` head"]),
    ("--tune head --augmentation.rotation 9", ["`augmentation` needs `views`"]),
    ("--tune lora --backbone mobilenet_v2", ["Received: backbone='mobilenet_v2', tune='lora'"]),
    ("--layer_decay 0.5 --tune head", ["`layer_decay` is for `tune` full. Received"]),
    ("--lora_rank 4", ["`lora_rank` is for `tune` lora. Received: lora_rank=4"]),
    ("--dataset features:missing.npz", ["there is no missing.npz", "`embeddings` and `labels`"]),
    ("--dataset features:x.npz --mirror true", ["`mirror` must be left out with a `dataset`"]),
    ("--dataset features:x.npz --tune lora", ["`tune`"]),
    ("--views 2", ["`views` are for `tune` head. Received: views=2, tune='full'"]),
    ("--loss hdc DIGITS --tune head", ["full for several levels. Received: tune='head'"]),
    ("--dropout [0.5,1.0]", ["`dropout` must be a number >= 0 and < 1 or a list"]),
    ("DIGITS --embedding_dim 65537", ["be <= 65,536. Received: embedding_dim=65537"]),
]


@pytest.mark.parametrize(("flags", "words"), REJECTED)
def test_bad_input_is_rejected_with_a_sentence(flags, words, tmp_path):
    arguments = [part for word in flags.split() for part in STAND_FOR.get(word, [word])]
    message = rejection(*arguments, cwd=tmp_path)
    assert message.startswith("tfdml-train: error: ")
    assert [word for word in words if word not in message] == [], message
    assert not list(tmp_path.iterdir())


def test_a_sampler_rejects_the_images_before_density_measures_them(tmp_path):
    options = ["--loss", "density", "--dataset", "digits", "--sampler", "whole_classes"]
    result = programs.run(train.main, *options, cwd=tmp_path)
    assert "the largest class" in result.sentence
    assert "Measuring" not in result.out


def test_a_folder_that_cannot_be_written_is_rejected(tmp_path):
    (tmp_path / "runs").write_text("a file where the folder should be")
    message = rejection("--run", "x", *STAND_FOR["NO_DATA"], cwd=tmp_path)
    assert f"cannot write to {tmp_path / 'runs'}" in message
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_classes_to_score_without_pairs_are_rejected(tmp_path):
    photos = write_images(tmp_path / "photos", {"a": 2, "b": 2, "c": 1, "d": 1})
    data = ["--dataset", "folder", "--data_dir", photos, "--classes_per_batch", "2"]
    message = rejection(*data, cwd=tmp_path)
    assert "one class to score must have 2 images or more" in message
    assert "Received: images=2, classes=2" in message
    assert not (tmp_path / "runs").exists()


def test_an_image_that_cannot_be_read_is_named(tmp_path):
    photos = write_images(tmp_path / "photos", dict.fromkeys("abcd", 2))
    (photos / "c" / "empty.png").write_bytes(b"")
    data = ["--dataset", "folder", "--data_dir", photos, "--image_size", "16"]
    message = rejection(*data, *TWO_STEPS, cwd=tmp_path)
    assert "empty.png cannot be read (0 bytes" in message
    assert "--skip_invalid" in message


@pytest.mark.parametrize("content", ["steps: [1\nloss", "", "- 1\n- 2", "steps:\n  many"])
def test_a_broken_config_gets_one_line_with_its_name(content, tmp_path):
    (tmp_path / "x.yaml").write_text(content)
    result = programs.run(train.main, "--config", "x.yaml", cwd=tmp_path)
    assert result.err.startswith("tfdml-train: error: x.yaml: ")
    assert len(result.sentence) == len(result.err.strip()) > len("tfdml-train: error: x.yaml: ")


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        ("memory base=contrastive size=64", "`start_step` must be below the steps, or the memory"),
        ("sampled_classes base=cosface rate=0.1", "`rate` must sample at least as many classes"),
    ],
)
def test_what_a_loss_cannot_take_is_said_before_images_are_embedded(loss, expected, tmp_path):
    name, *options = loss.split()
    flags = ["--loss", name, *(f"--loss_options.{option}" for option in options)]
    result = programs.run(train.main, *SMALL, *flags, "--steps", "9", "--run", "r", cwd=tmp_path)
    assert expected in result.sentence
    assert "Embedding" not in result.out
    assert not (tmp_path / "runs").exists()
