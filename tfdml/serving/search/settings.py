"""The settings of a search, checked: which model, which images, and where they are served."""

import dataclasses

from tfdml.checks import check, check_positive

MOST_NEIGHBOURS = 200  # that one answer may have


@dataclasses.dataclass(frozen=True)
class Search:
    """What to search by, and in what.

    Args:
        model: A run's folder in `saved_models/`, whose newest version is taken, or one version.
        images: Folder of the images, searched with its sub-folders: .bmp, .gif, .jpeg, .jpg, .png
            and .webp. Hidden files and links that lead out of it are passed over. Nothing is ever
            written to it.
        index: File of the index, from which the next start goes on with what has changed since. If
            not given, one in `indexes/` of the current folder, named after the model and `images`.
        host: Address to listen at. The default is reached from this computer alone; 0.0.0.0 from
            every network that it is in, by anyone: there is no password.
        port: Port to listen at, from 0 to 65535; 0 for any that is free.
        trusted_hosts: Names by which browsers reach it, such as `'[search.example.org]'`; others
            are refused. If not given those of this computer for a `host` of it, else any.
        upload_megabytes: Size of an image that may be sent, at most 1024.
        neighbours: Images of an answer that does not ask for a number `k`, from 1 to 200.
        rerank: Nearest images that a learned similarity puts in order, from 0, which ranks by
            distance. If not given 100 for a model with such a similarity (`--loss pddm` and kin).
        approximate: Look only at a part of the index, from 100,000 images on, which finds nearly
            the same images sooner. Below that there is nothing to gain.
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
