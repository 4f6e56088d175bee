"""Signatures and training of an exported version."""

import hashlib
import os
import pathlib

from tfdml.checks import check
from tfdml.files import read_settings
from tfdml.serving.metadata import read_metadata, with_place, without_folders
from tfdml.serving.versions import newest_version

MEAN_IMAGE = "mean_image.npy"


def find_version(folder):
    """The SavedModel at `folder`, or its newest version, or that of the run at `folder`."""
    if (folder / "saved_model.pb").is_file():
        return folder
    if (folder / "config.yaml").is_file():  # runs/NAME, beside saved_models/NAME
        run = folder.resolve()
        folder = pathlib.Path(os.path.relpath(run.parent.parent / "saved_models" / run.name))
    return newest_version(folder)


def recipe_of(version):
    """The settings of a version's training; {} if it was exported by another program."""
    return recipe_in(read_metadata(version))


def recipe_in(metadata):
    """As `recipe_of`, of the metadata of a version."""
    recipe = metadata.get("recipe")
    if isinstance(recipe, dict) and recipe.get("dataset") and "data_dir" in recipe:
        return recipe
    return {}


def config_of(version, recipe):
    """The settings of a version's training with their folders, of runs/NAME/config.yaml, or None.

    A training of another recipe does not count, one continued for more steps does.
    """
    recipe = without_folders(recipe)
    place = version.resolve().parent.parent.parent  # of saved_models/NAME/1
    config = place / "runs" / str(recipe.get("run")) / "config.yaml"
    try:
        settings = read_settings(config)
        settings |= {name: value for name, value in recipe.items() if name == "steps"}
        return with_place(settings, place) if without_folders(settings) == recipe else None
    except (OSError, ValueError):
        return None


def fingerprint(version):
    """The SHA-256 of the graph and variables of a SavedModel, independent of its path."""
    digest = hashlib.sha256()
    for path in [version / "saved_model.pb", *sorted((version / "variables").glob("*"))]:
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def load_signatures(version, stated=None):
    """The checked signatures of a SavedModel, `stated` to have a fingerprint, by its metadata."""
    import tensorflow as tf  # for which programs that look for a version do not wait

    if stated is None:
        stated = read_metadata(version).get("fingerprint")
    if stated and stated != fingerprint(version):
        raise ValueError(f"{version} cannot be read (its graph or variables are damaged)")
    try:
        signatures = tf.saved_model.load(str(version)).signatures
    except Exception as error:  # broken SavedModels raise many types
        raise ValueError(f"{version} cannot be read ({str(error).splitlines()[0]})") from error
    if "embed_images" not in signatures:
        names = ", ".join(signatures)
        raise ValueError(f"{version} has no signature embed_images. It has: {names}")
    embed = signatures["embed_images"]
    inputs, outputs = embed.structured_input_signature[1], embed.structured_outputs
    images = inputs.get("images")
    check(
        list(inputs) == ["images"]
        and (images.dtype, images.shape.rank) == (tf.float32, 4)
        and images.shape[1:].is_fully_defined()
        and images.shape[3] in (1, 3)
        and "embedding" in outputs,
        f"embed_images of {version} must take float32 `images` of a fixed size, grey or RGB, and "
        "return `embedding`",
        takes={name: (spec.shape, spec.dtype.name) for name, spec in inputs.items()},
        gives=list(outputs),
    )
    return signatures


def check_similarity(version, signatures):
    """Raises a ValueError unless the signatures have a learned similarity."""
    if not {"score_pairs", "score_matrix"} <= set(signatures):
        raise ValueError(
            f"{version} has no learned similarity to rank by: train with --loss pddm, or rank by "
            f"distance. It has no score_pairs and score_matrix among its signatures, "
            f"{', '.join(signatures)}"
        )
