"""Cost and recall of the early exits of a trained run, to choose a level by.

    python benchmarks/early_exit.py runs/cars_hdc

Prints, for the first level, the first two and so on, the size of the SavedModel, its throughput in
images/s (batches of 32 decoded images), and its Recall@1 on the test classes, or on those that the
run held out.
"""

import argparse
import pathlib
import tempfile

import yaml

import pipelines
from tfdml.command_line import one_sentence
from tfdml.evaluation import recall_at_k
from tfdml.models import number_of_levels
from tfdml.runs.exporting import images_per_second, load_run, serve_run, write_next
from tfdml.serving.versions import megabytes, newest_version


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=pathlib.Path, help="folder of a run, runs/NAME")
    run = parser.parse_args().run.resolve()
    with one_sentence(parser.prog, ValueError, OSError):
        recipe = yaml.safe_load((run / "config.yaml").read_text())
        trained = newest_version(run.parents[1] / "saved_models" / run.name)
        model = load_run(run, trained)
        levels, split = number_of_levels(model.embedder), split_of(recipe)
        size = model.embedder.input_shape[1:]
        embeddings = model.embed(pipelines.evaluation_batches(split, size), verbose=1)
        print(f"{'levels':>8}{'MB':>8}{'images/s':>10}{'recall@1':>10}")
        with tempfile.TemporaryDirectory() as folder:
            for number in range(1, levels + 1):
                out = pathlib.Path(folder, str(number))
                version = write_next(serve_run(model, trained, number), out, trained)
                shallow = embeddings[:, : number * recipe["embedding_dim"]]
                recall = recall_at_k(shallow, split.labels, k=1)[1]
                cost = f"{megabytes(version):8.1f}{images_per_second(version):10,.0f}"
                print(f"{number:8}{cost}{recall:10.4f}", flush=True)


def split_of(recipe):
    dataset = pipelines.load(recipe["dataset"], recipe["data_dir"], recipe["skip_invalid"])
    share = recipe["validation_share"]
    return pipelines.hold_out_classes(dataset.train, share)[1] if share else dataset.test


if __name__ == "__main__":
    main()
