"""Classification by the nearest class mean, of new images of the scored classes."""

import dataclasses
from typing import ClassVar

from tfdml.checks import check_positive
from tfdml.runs.scoring.one_per_class import in_words
from tfdml.runs.scoring.settings import Scoring


@dataclasses.dataclass(frozen=True)
class NearestClassMean(Scoring):
    """Whether the nearest class mean is that of the class of an image.

    The means are of some images of each scored class, drawn at random; the others are classified.

    Args:
        shots: Images of each class for its mean, of smaller classes all but one; half of each class
            if not given.
        draws: Number of draws of these images, over which scores have a mean and a deviation.
        renormalize_means: Scale class means to unit length.
    """

    task: ClassVar[str] = "ncm"
    naming: ClassVar[tuple] = ("draws", "seed")

    shots: int | None = None
    draws: int = 10
    renormalize_means: bool = False

    def __post_init__(self):
        super().__post_init__()
        check_positive(**self.given("draws", "shots"))

    @property
    def words(self):
        shots = [f"shots_{self.shots}"] if self.shots else []
        return [self.task, *shots, *(["unit_means"] if self.renormalize_means else [])]

    @property
    def ranking(self):
        shots = "half" if self.shots is None else f"{self.shots:,} at most"
        return f",\nthe nearest mean of {shots} of the images of each class, {in_words(self.draws)}"

    def score(self, model, images):
        """{"scores": {name: value}, "deviations": {name: value}} over the draws."""
        from tfdml.evaluation.draws import few_shot_scores

        options = self.given("shots", "k", "draws", "seed", "renormalize_means")
        embeddings = model.embed_joined(self, images.split)
        return few_shot_scores(embeddings, images.split.labels, **options)
