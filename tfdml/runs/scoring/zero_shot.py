"""Classification into classes without images, by the means of related classes in a hierarchy."""

import dataclasses
import pathlib
from typing import Any, ClassVar

import pipelines
import tfdml
from tfdml.checks import check, check_options
from tfdml.runs.scoring.images import Scored, names_of, training_split
from tfdml.runs.scoring.settings import Scoring

PLACEMENT = ("ancestors", "weights", "include_roots")  # of `tfdml.evaluation.zero_shot_means`


@dataclasses.dataclass(frozen=True)
class ZeroShot(Scoring):
    """Whether the nearest class mean is that of an image whose class has no images.

    The mean of such a class is that of its related classes in a hierarchy.

    Args:
        hierarchy: CSV file with the lines `class,parent`, where a parent may be the class of
            another line; the super-classes of the dataset, under one root, if not given.
        unseen_share: Hold out this share of the scored classes of each parent, evenly in their
            order; the others are known by the means of their images. If not given, the scored
            classes are held out and the training classes known.
        placement: Options such as `--placement.ancestors parent`; the docstring of
            `tfdml.evaluation.zero_shot_means` lists them.
        renormalize_means: Scale class means to unit length.
    """

    task: ClassVar[str] = "zero_shot"
    paths: ClassVar[tuple] = (*Scoring.paths, "hierarchy")

    hierarchy: str | None = None
    unseen_share: float | None = None
    placement: dict[str, Any] = dataclasses.field(default_factory=dict)
    renormalize_means: bool = False

    def __post_init__(self):
        super().__post_init__()
        valid = self.unseen_share is None or 0 < self.unseen_share < 1
        self.check(valid, "`unseen_share` must be > 0 and < 1")
        check_options("`placement`", self.placement, PLACEMENT)

    @property
    def words(self):
        words = [self.task, *([pathlib.Path(self.hierarchy).stem] if self.hierarchy else [])]
        words += [f"unseen_{self.unseen_share:g}"] if self.unseen_share else []
        words += [f"{name}_{value}" for name, value in self.placement.items()]
        return [*words, *(["unit_means"] if self.renormalize_means else [])]

    @property
    def ranking(self):
        return ",\nthe nearest mean of the related classes of each class"

    def prepare(self, model, images):
        """The images of unseen classes alone, with those of known classes and the hierarchy."""
        import numpy as np

        if self.unseen_share is None:
            known, unseen = self._training_classes(model, images), images.split
            hierarchy = self._hierarchy_of(pipelines.join_splits([known, unseen]))
        else:
            hierarchy = self._hierarchy_of(images.split)
            known, unseen = self._held_out(images.split, hierarchy)
        known_ids, unseen_ids = (np.unique(split.labels) for split in (known, unseen))
        related = tfdml.evaluation.have_relatives(known_ids, hierarchy, unseen_ids)
        expectation = (
            "no unseen class shares a non-root ancestor with a known class: give `unseen_share`, "
            "such as 0.2, to hold classes out of each parent"
        )
        check(related.any(), expectation, known=len(known_ids), unseen=len(unseen_ids))
        no_means = np.zeros((len(known_ids), 1))  # to reject a placement before the embedding
        tfdml.evaluation.zero_shot_means(
            no_means, known_ids, hierarchy, unseen_ids, **self.placement
        )
        return UnseenImages(unseen, None, images.dataset, known, hierarchy)

    def _training_classes(self, model, images):
        known = training_split(self, model, images.dataset)
        expectation = (
            "`unseen_share` must be given, except for the split test or validation of the "
            "images of the training, whose training classes are known"
        )
        self.check(known is not None, expectation, "split", "dataset")
        return known

    def _held_out(self, split, hierarchy):
        """The images of known and of unseen classes, by `unseen_share`."""
        import numpy as np

        classes = np.unique(split.labels).tolist()
        unseen = tfdml.evaluation.every_nth_child(classes, hierarchy, self.unseen_share)
        self.check(unseen, "`unseen_share` must hold out a class of a parent or more")
        rows = np.isin(split.labels, unseen)
        return split.subset(~rows), split.subset(rows)

    def _hierarchy_of(self, split):
        """The parents of the classes: those of the file, or the super-classes of the dataset."""
        from tfdml.evaluation import hierarchy

        if self.hierarchy:
            return hierarchy.of_class_ids(hierarchy.read_hierarchy(self.hierarchy), names_of(split))
        expectation = "`hierarchy` must be given for a dataset without super-classes"
        self.check(split.super_labels is not None, expectation, "dataset")
        return hierarchy.of_super_classes(split.labels, split.super_labels)

    def score(self, model, images):
        """{"scores": {name: value}}, and the same for the other ways to count classes."""
        from tfdml.evaluation.zero_shot import zero_shot_scores

        splits = (images.known, images.split)
        known, unseen = ((model.embed_joined(self, split), split.labels) for split in splits)
        options = {"k": self.k, "renormalize_means": self.renormalize_means, **self.placement}
        return zero_shot_scores(*known, images.hierarchy, *unseen, **options)


@dataclasses.dataclass(frozen=True)
class UnseenImages(Scored):
    """The images of unseen classes, and what is known of the others."""

    known: Any  # `Split`
    hierarchy: Any
