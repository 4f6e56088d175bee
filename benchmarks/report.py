"""Time and size of the HTML report of a folder of images.

    python benchmarks/report.py PHOTOS

PHOTOS has one sub-folder of images per class. The embeddings are principal components of grey
pixels: poor ones, but the report costs the same. Limits for 8,000 images: 60 seconds, 10 MB.
"""

import argparse
import pathlib
import resource
import tempfile
import time

import numpy as np
from PIL import Image
from sklearn.decomposition import PCA
from tqdm import tqdm

from tfdml.evaluation import bootstrap_intervals, rank
from tfdml.evaluation.metrics import Metrics
from tfdml.evaluation.report.page import write_report

SIDE = 32


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "folder", type=pathlib.Path, help="folder of images, a sub-folder per class"
    )
    folder = parser.parse_args().folder
    files = sorted(path for path in folder.glob("*/*") if path.is_file())
    if not files:
        parser.error(f"no images in sub-folders of {folder}")
    names = sorted({path.parent.name for path in files})
    labels = np.array([names.index(path.parent.name) for path in files])
    pixels = np.stack([grey_pixels(path) for path in tqdm(files, "Reading", delay=2)])
    embeddings = PCA(min(64, len(files)), random_state=0).fit_transform(pixels)
    start, cpu = time.perf_counter(), time.process_time()
    ranking = rank(embeddings, labels, nearest=10, histogram=True)
    per_query = Metrics.of(None, (1, 10), len(labels) - 1).values(ranking)
    with tempfile.TemporaryDirectory() as out:
        page = write_report(
            embeddings,
            labels,
            out,
            title=folder.resolve().name,
            scores={name: values.mean() for name, values in per_query.items()},
            per_query=per_query,
            intervals=bootstrap_intervals(per_query, labels),
            picture_of=lambda row: np.asarray(Image.open(files[row]).convert("RGB")),
            class_names=dict(enumerate(names)),
            ranking=ranking,
        )
        megabytes = page.stat().st_size / 1e6
    gigabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(
        f"{len(files):,} images of {len(names):,} classes: {time.perf_counter() - start:.1f} s "
        f"({time.process_time() - cpu:.1f} s of the CPU), {megabytes:.1f} MB, at most "
        f"{gigabytes:.2f} GB of memory"
    )


def grey_pixels(path):
    image = Image.open(path).convert("L").resize((SIDE, SIDE))
    return np.asarray(image, np.float32).reshape(-1) / 255


if __name__ == "__main__":
    main()
