"""Metadata of an exported version: `assets.extra/metadata.json`.

    dimension            length of an embedding, over all levels
    levels               number of embeddings concatenated in it
    image_size           height, width and channels of the network's input
    colours              RGB or grey, of the channels of that input
    format               saved_model, or onnx, litert and openvino, joined by commas
    files                of other formats than the SavedModel, by name: their format, SHA-256, size
                         in megabytes, and the largest difference of their numbers from those of
                         Keras; only if there are any
    signatures           names of the functions
    precision            of the stored weights: float32, float16 or int8
    on_bad_image         error or nan
    max_pixels           of the largest image that is decoded
    top                  number of rows that `classify` and `neighbours` return, by signature
    decision             between known classes and none: the method, threshold and calibration that
                         `open_set_decision` chose, its scores, and the names of the classes; only
                         if there is one
    versions             of tfdml, TensorFlow and Keras at the export
    licence, description as given to the export; null if not given
    fingerprint          SHA-256 of the graph and variables
    trained_classes      names of the classes that it was trained on
    recipe               the settings of its training, as `train.py --config` takes them, with
                         files and folders by name only
    scores               of the trained model, by name
    precision_scores     of a rounded precision, and of the files of other formats: Recall@1 and
                         megabytes next to those of the run's export
    projection           `pca` and `whiten` of the components in which it ends

The last five are present only if known.
"""

import json
import os

from tfdml.files import read_text

FILE = "metadata.json"
# Settings of a training that may name a file or folder.
PATHS = ("boxes", "data_dir", "exclude", "init_from", "mean_image", "relabel", "weights")
_WORDS = ("annotated", "imagenet")  # which they may be instead
TRAINING = ("trained_classes", "recipe", "scores", "precision_scores", "projection")


def without_folders(recipe):
    """The recipe with its files and folders by name only."""
    paths = _paths_in(recipe)
    return recipe | {name: os.path.basename(os.path.normpath(paths[name])) for name in paths}


def with_place(recipe, place):
    """The recipe, with paths relative to `place`, if they exist, relative to the current folder."""
    relative = {n: place / path for n, path in _paths_in(recipe).items() if not os.path.isabs(path)}
    found = {name: path for name, path in relative.items() if path.exists()}
    return recipe | {name: os.path.relpath(path) for name, path in found.items()}


def _paths_in(recipe):
    """{name: path} of the settings that name a file or folder."""
    given = {name: recipe.get(name) for name in PATHS}
    return {n: path for n, path in given.items() if isinstance(path, str) and path not in _WORDS}


def write_metadata(folder, metadata):
    """Writes the metadata into a version's `assets.extra`."""
    text = json.dumps(metadata, indent=2, ensure_ascii=False) + "\n"
    (folder / FILE).write_text(text, encoding="utf-8")


def read_metadata(version):
    """The metadata of a version; {} if it has none, or a file of another program."""
    try:
        metadata = json.loads(read_text(version / "assets.extra" / FILE))
    except (OSError, ValueError, RecursionError):
        return {}
    return metadata if isinstance(metadata, dict) else {}
