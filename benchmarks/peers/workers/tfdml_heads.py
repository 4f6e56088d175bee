"""A head on features by tfdml."""

import dataclasses

from benchmarks.peers.workers.tfdml_losses import versions
from tfdml.quiet import import_tensorflow


def prepare(settings, folder):
    import_tensorflow()
    from tfdml import runs
    from tfdml.evaluation import recall_at_k
    from tfdml.runs.recipe import Recipe

    recipe = Recipe(
        loss=settings["name"],
        loss_options=settings["options"],
        dataset=f"features:{folder / settings['inputs']}",
        learning_rate=settings["rate"],
        schedule="constant",
        **{name: settings[name] for name in ("embedding_dim", "steps")},
        **{name: settings[name] for name in ("classes_per_batch", "images_per_class")},
    )

    def work():
        with runs.prepare(dataclasses.replace(recipe)) as run:
            run.train()
            rows = runs.embed_scored(run.trained, run.seen)
            return {"recall": recall_at_k(rows, run.images.test.labels, 1)[1]}

    work.versions = versions()
    return work
