"""The folders of a run: free names, one writer, files that appear together or not at all."""

import itertools
import json
import pathlib
import tempfile
import zipfile

from tfdml.checks import check
from tfdml.files import as_file_name, locked, read_settings, read_text, shortened
from tfdml.serving.exported import recipe_of
from tfdml.serving.versions import versions_of

RUNS = pathlib.Path("runs")
SAVED_MODELS = pathlib.Path("saved_models")
CHECKPOINT = "checkpoint.keras"
TRAINED = "trained_classes.json"
ADAPTERS = "adapters.npz"  # and the head, of `tune` lora
FROZEN = "frozen_queries.npz"  # hits of the frozen features
EARLIER = "earlier_classes.json"  # of the run that it starts from


def is_taken(name):
    return (RUNS / name).exists() or (SAVED_MODELS / name).exists()


def free_name(text):
    """The text as a name, or with `_2`, `_3`, ... where that is taken."""
    name = shortened(as_file_name(text), most=96)  # of 100 bytes, with room for a number
    numbered = (f"{name}_{number}" for number in itertools.count(2))
    return next(each for each in itertools.chain([name], numbered) if not is_taken(each))


def make_folders(folder, files):
    """Makes the run's folder, which appears with its first files or not at all."""
    RUNS.mkdir(exist_ok=True)
    SAVED_MODELS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=RUNS) as unfinished:
        new = pathlib.Path(unfinished) / folder.name
        (new / "logs").mkdir(parents=True)
        for name, text in files.items():
            (new / name).write_text(text, encoding="utf-8")
        new.rename(folder)  # fails if another process has just begun the run


def classes_text(names):
    return json.dumps(names, ensure_ascii=False) + "\n"


def read_classes(folder, file):
    """The names in `TRAINED` or `EARLIER` of a run; [] without the file."""
    path = folder / file
    names = json.loads(read_text(path)) if path.is_file() else []
    check(isinstance(names, list), f"{path} must be a list of texts, as JSON", content=names)
    return names


def only_writer(folder):
    """Locks a run: of two processes that write to it, the second is rejected."""
    taken = f"another process is training run {folder.name!r}: let it end, or stop it"
    return locked(folder, taken)


def check_incomplete(recipe):
    """Raises a FileExistsError if the run has exported a version at its last step."""
    versions = versions_of(SAVED_MODELS / recipe.run)
    newest = versions and versions[max(versions)]
    if newest and recipe_of(newest).get("steps", recipe.steps) >= recipe.steps:
        raise FileExistsError(
            f"run {recipe.run!r} is complete: {newest}. To train it further, give more --steps "
            f"than {recipe.steps}"
        )


def source_of(run):
    """The checkpoint of a run, given by its name, its folder or the file; or its adapters."""
    for path in (RUNS / run / CHECKPOINT, pathlib.Path(run, CHECKPOINT), pathlib.Path(run)):
        if zipfile.is_zipfile(path):
            return path
    expectation = f"`init_from` must be a run with a checkpoint, a .keras file or {ADAPTERS}"
    raise FileNotFoundError(f"{expectation}. Received: init_from={run!r}")


def classes_before(recipe):
    """Names of the classes of its dataset that the run of `init_from` was trained on."""
    if not recipe.init_from:
        return []
    folder = source_of(recipe.init_from).parent
    config = folder / "config.yaml"
    if not config.is_file() or read_settings(config).get("dataset") != recipe.dataset:
        return []
    return [*read_classes(folder, TRAINED), *read_classes(folder, EARLIER)]


def check_same_images(folder, names, counts):
    """Raises a ValueError if names of classes or counts of images changed since the run began."""
    path, scores = folder / TRAINED, folder / "scores.json"
    before = json.loads(read_text(scores)) if scores.is_file() else {}
    differing = {name: of for name, of in counts.items() if before.get(name, of) != of}
    same = not path.is_file() or read_text(path) == classes_text(names)
    expectation = f"images and training classes must be those that {folder} began with"
    expectation += ": restore them, or start a new run"
    check(same and not differing, expectation, classes=len(names), **differing)
