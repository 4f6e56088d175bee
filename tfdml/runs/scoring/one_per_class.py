"""Scores among one image of each class, drawn at random."""

import dataclasses
from typing import ClassVar

import tfdml
from tfdml.checks import check_positive
from tfdml.runs.scoring.settings import Scoring


@dataclasses.dataclass(frozen=True)
class OnePerClass(Scoring):
    """Retrieval among one image of each class, drawn at random, as VehicleID is scored.

    Args:
        rank_by: `distance`, Euclidean; or `similarity`, the score that the model learned.
        draws: Number of draws of the gallery, over which scores have a mean and a deviation.
    """

    task: ClassVar[str] = "one_per_class"
    naming: ClassVar[tuple] = ("draws", "seed")

    rank_by: str = "distance"
    draws: int = 10

    def __post_init__(self):
        super().__post_init__()
        check_positive(draws=self.draws)

    @property
    def words(self):
        return [self.task, *(["similarity"] if self.rank_by == "similarity" else [])]

    @property
    def ranking(self):
        by = ",\nranked by the learned similarity" * (self.rank_by == "similarity")
        return f",\namong one image of each class, {in_words(self.draws)}{by}"

    def most_neighbours(self, images):
        return "gallery", images.split.num_classes

    def score(self, model, images):
        """{"scores": {name: mean}, "deviations": {name: deviation}} over the draws."""
        embeddings, labels = model.embed_joined(self, images.split), images.split.labels
        options = {"draws": self.draws, "seed": self.seed, "similarity": model.similarity(self)}
        found = tfdml.evaluation.one_per_class_scores(embeddings, labels, self.k, **options)
        deviations = {name: deviation for name, (_, deviation) in found.items()}
        return {
            "scores": {name: mean for name, (mean, _) in found.items()},
            "deviations": deviations if self.draws > 1 else {},
        }


def in_words(draws):
    return f"{draws} draw" + "s" * (draws > 1)
