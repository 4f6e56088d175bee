"""What the searches of a folder and of a collection share: the questions and their answers."""

import time
from typing import Any, NamedTuple

import numpy as np

from tfdml.search.picture_files import RejectedError, read_header

MOST_PIXELS = 50_000_000  # of a picture that is sent; two are decoded at once, in 2 GB


class Found(NamedTuple):
    """An image that a search found."""

    id: int
    entry: Any  # `Entry`, or `Listed` of a collection
    scores: dict  # those of "similarity", which was learned, "cosine" and "distance" that apply


class Answer(NamedTuple):
    """Results of a search, best first."""

    ranked_by: str  # name of a score of `Found`
    found: list
    seconds: dict  # {"embedding": of the model, "search": of the index, "reranking": ...}
    decision: dict | None  # of a model that decides: "known", "class", "probability" and the reason


class PictureSearch:
    """Search by a picture, or by an image of the index.

    Attributes:
        model: A `SearchModel`.
        images: What is searched: has `nearest`, `rows` and `entry`. Read once for an answer.
        rerank: Least number of nearest images that a learned similarity reranks.
        exact: Whether a query is compared with the embeddings of all images.
    """

    model: Any
    images: Any
    rerank, exact = 0, True

    uploads: Any = None  # folder of pictures that may be added
    filters = False  # whether images may be chosen by a condition

    def stop(self):
        """Ends work in the background, if there is any."""

    def add(self, content):
        """Raises a `RejectedError`: what is in the folder is searched, after a refresh."""
        raise RejectedError("Change the folder of the images, and refresh the index", status=409)

    remove = add

    @property
    def ranked_by(self):
        """The score that results are ordered by."""
        by_distance = "distance" if self.model.radius is None else "cosine"
        return "similarity" if self.rerank else by_distance

    def entry(self, key):
        """What is known of an image; a `RejectedError` with 404 if no image has this id."""
        return self.images.entry(key)

    def by_picture(self, content, count, where=""):
        """The `Answer` of the images nearest to a picture, given as the bytes of its file.

        `where` is a condition in SQL that the images of a collection must meet.
        """
        _, width, height = read_header(content)
        if width * height > MOST_PIXELS:
            sides = f"{width:,} x {height:,}"
            expected = f"The picture must have at most {MOST_PIXELS:,} pixels"
            raise RejectedError(f"{expected}. Received: {sides}", status=413)
        began = time.perf_counter()
        row = self.embedded(content)
        seconds = {"embedding": time.perf_counter() - began}
        return self._answer(self.images, row, count, where, seconds)

    def embedded(self, content):
        """The (dim,) embedding of the bytes of a file; a `RejectedError` if it cannot be read."""
        [row] = self.model.embed_pictures([content])
        if isinstance(row, RejectedError):
            raise row
        return row

    def by_id(self, key, count, where=""):
        """The `Answer` of the images nearest to one of the index, without itself."""
        images = self.images
        images.entry(key)
        [row] = images.rows([key])
        return self._answer(images, row, count, where, {}, left_out=key)

    def _answer(self, images, row, count, where, seconds, left_out=-1):
        began = time.perf_counter()
        ids, distances = images.nearest(row, max(count, self.rerank) + (left_out >= 0), where)
        others = ids != left_out
        ids, distances, scores = ids[others], distances[others], {}
        order, radius = np.arange(len(ids)), self.model.radius
        seconds["search"] = time.perf_counter() - began
        if self.rerank and len(ids):
            began = time.perf_counter()
            scores["similarity"] = self.model.score(row, images.rows(ids))
            order = np.argsort(-scores["similarity"], kind="stable")
            seconds["reranking"] = time.perf_counter() - began
        if radius is not None:
            scores["cosine"] = 1 - distances**2 / (2 * radius**2)
        scores["distance"] = distances
        found = []
        for place in order[:count].tolist():
            key = int(ids[place])
            values = {name: float(score[place]) for name, score in scores.items()}
            found.append(Found(key, images.entry(key), values))
        return Answer(self.ranked_by, found, seconds, self.model.decide(row))
