"""The images of a data set, decoded and resized once for both sides: uint8, classes from 0."""

import numpy as np

from tfdml.quiet import import_tensorflow


def prepare(settings, _):
    import_tensorflow()
    import pipelines

    dataset = pipelines.load(settings["dataset"], settings["data_dir"])
    size = (settings["stored"], settings["stored"], settings["channels"])

    def work():
        made = {}
        for name in ("train", "test"):
            split = dataset.splits[name].renumbered()
            batches = pipelines.evaluation_batches(split, size)
            images = [np.round(batch).astype(np.uint8) for batch in batches.as_numpy_iterator()]
            made |= {f"{name}_images": np.concatenate(images), f"{name}_labels": split.labels}
        return made

    return work
