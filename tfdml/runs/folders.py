"""The folders of a run: free names, one writer, files that appear together or not at all."""

import itertools
import json
import pathlib
import tempfile

from tfdml.checks import check
from tfdml.files import as_file_name, locked, read_text, shortened

RUNS = pathlib.Path("runs")
SAVED_MODELS = pathlib.Path("saved_models")
TRAINED = "trained_classes.json"
EARLIER = "earlier_classes.json"  # of the run that it starts from
IMAGES = {"training_images": "to train on", "scored_images": "to score"}  # counted in scores.json


def is_taken(name):
    return (RUNS / name).exists() or (SAVED_MODELS / name).exists()


def how_to_go_on(name):
    """What can be done with the folders of a run whose name is taken, in words."""
    if (RUNS / name / "config.yaml").is_file():
        return "go on with --resume"
    found = [str(folder / name) for folder in (RUNS, SAVED_MODELS) if (folder / name).exists()]
    return f"delete {' and '.join(found)}"


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
        try:
            new.rename(folder)
        except OSError as error:
            if not folder.exists():
                raise
            raise FileExistsError(
                f"another process has just begun run {folder.name!r}. Choose another --run"
            ) from error


def classes_text(names):
    return json.dumps(names, ensure_ascii=False) + "\n"


def read_classes(folder, file):
    """The names in `TRAINED` or `EARLIER` of a run; [] without the file."""
    path = folder / file
    try:
        names = json.loads(read_text(path)) if path.is_file() else []
    except (ValueError, RecursionError):
        names = {}
    are_texts = isinstance(names, list) and all(isinstance(name, str) for name in names)
    check(are_texts, f"{path} must be a list of texts, as JSON", content=names)
    return names


def only_writer(folder):
    """Locks a run: of two processes that write to it, the second is rejected."""
    return locked(
        folder, f"another process is training run {folder.name!r}: let it end, or stop it"
    )


def check_same_images(folder, files, counts):
    """Raises a ValueError if the images changed since the run began.

    Args:
        folder: Of the run.
        files: {name: text}, as for `make_folders`.
        counts: {name in `IMAGES`: number of images}.
    """
    path, scores = folder / TRAINED, folder / "scores.json"
    advice = "Restore the images, or start a new run"
    if path.is_file() and read_text(path) != files[TRAINED]:
        raise ValueError(
            f"the classes to train are not those that {folder} began with ({path}). {advice}"
        )
    before = json.loads(read_text(scores)) if scores.is_file() else {}
    for name, count in counts.items():
        if before.get(name, count) != count:
            raise ValueError(
                f"the images {IMAGES[name]} are {count:,}, where {folder} began with "
                f"{before[name]:,}. {advice}"
            )
