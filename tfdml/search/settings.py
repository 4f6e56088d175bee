"""The checked settings of a search: model, images, index and address."""

import dataclasses

from tfdml.checks import check, check_positive

MOST_NEIGHBOURS = 200  # in one answer


@dataclasses.dataclass(frozen=True)
class Search:
    """Model, images and server of a search.

    Args:
        model: A run's folder in `saved_models/`, for its newest version, or one version.
        images: Folder of the images, searched with its sub-folders: .bmp, .gif, .jpeg, .jpg, .png
            and .webp. Hidden files and links that lead out of it are ignored. Nothing is ever
            written to it.
        index: File of the index, which the next start updates. If not given, a file in `indexes/`
            of the current folder, named after the model and `images`.
        host: Address to listen at. The default can be reached from this computer only, 0.0.0.0 from
            every network of this computer, by anyone: there is no password.
        port: Port to listen at, from 0 to 65535; 0 for any free one.
        trusted_hosts: Host names that browsers may use, such as `'[search.example.org]'`; others
            are rejected. If not given, those of this computer for a local `host`, otherwise any.
        upload_megabytes: Largest size of an uploaded image, at most 1024.
        neighbours: Default number of images in an answer (`k` of a request), from 1 to 200.
        rerank: Number of nearest images that a learned similarity reranks; 0 ranks by distance. If
            not given, 100 for a model with such a similarity (`--loss pddm` and related losses).
        approximate: From 100,000 images on, search only a part of the index, which finds nearly the
            same images faster.
    """

    model: str
    images: str
    index: str | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    trusted_hosts: list[str] | None = None
    upload_megabytes: float = 20.0
    neighbours: int = 24
    rerank: int | None = None
    approximate: bool = False

    def __post_init__(self):
        check(0 <= self.port <= 65535, "`port` must be from 0 to 65535", port=self.port)
        check_positive(upload_megabytes=self.upload_megabytes)
        check(
            self.upload_megabytes <= 1024,
            "`upload_megabytes` must be at most 1024",
            upload_megabytes=self.upload_megabytes,
        )
        check(
            1 <= self.neighbours <= MOST_NEIGHBOURS,
            f"`neighbours` must be from 1 to {MOST_NEIGHBOURS}",
            neighbours=self.neighbours,
        )
        check(self.rerank is None or self.rerank >= 0, "`rerank` must be >= 0", rerank=self.rerank)
