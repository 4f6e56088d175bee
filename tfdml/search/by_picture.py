"""What the searches of a folder and of a collection share: by a picture, and their answers."""

import time
from typing import Any, NamedTuple

from tfdml.search.images import RejectedError, read_header

MOST_PIXELS = 50_000_000  # of a picture that is sent; two are decoded at once, in 2 GB


class Found(NamedTuple):
    """An image that a search found; scores that do not apply are None."""

    id: int
    entry: Any  # `Entry`, or `Listed` of a collection
    distance: float  # Euclidean
    cosine: float | None
    similarity: float | None  # learned


class Answer(NamedTuple):
    """Results of a search, best first."""

    ranked_by: str  # name of a score of `Found`
    found: list
    seconds: dict  # {"embedding": of the model, "search": of the index, "reranking": ...}


class PictureSearch:
    """Search among embeddings by a picture that may be none of theirs.

    Args:
        model: A `SearchModel`.
    """

    def __init__(self, model):
        self.model = model

    def stop(self):
        """Ends work in the background, if there is any."""

    def by_picture(self, content, count):
        """The images nearest to a picture.

        Args:
            content: The bytes of its file.
            count: Images to find.

        Returns:
            An `Answer`.

        Raises:
            RejectedError: If it is not a picture, too large, or the model cannot read it.
        """
        _, width, height = read_header(content)
        if width * height > MOST_PIXELS:
            sides = f"{width:,} x {height:,}"
            expected = f"The picture must have at most {MOST_PIXELS:,} pixels"
            raise RejectedError(f"{expected}. Received: {sides}", status=413)
        began = time.perf_counter()
        [row] = self.model.embed([content])
        if isinstance(row, RejectedError):
            raise row
        return self._nearest(row, count, {"embedding": time.perf_counter() - began})

    def _nearest(self, row, count, seconds, left_out=None):
        """The `Answer` of an embedding, without the image of the id `left_out`."""
        raise NotImplementedError

    def _cosines(self, distances):
        """The cosines of (n,) distances, as a list; None each where embeddings vary in length."""
        radius = self.model.radius
        if radius is None:
            return [None] * len(distances)
        return (1 - distances**2 / (2 * radius**2)).tolist()
