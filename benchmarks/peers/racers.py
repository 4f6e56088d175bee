"""The races: data sets, budgets, and the objectives with the options that are tried.

Each side tries each objective three times: as it is, with another learning rate, and with other
options.
"""

import dataclasses

from benchmarks.peers.case import PML, TFDML
from benchmarks.peers.objectives import Built, peer, tfdml


@dataclasses.dataclass(frozen=True)
class Race:
    """A data set, the network that both sides train on it and the budgets."""

    dataset: str  # in `pipelines`
    folder: str  # in that of the data
    network: str  # backbone of tfdml
    pixels: int  # side of an image that is trained on
    stored: int  # side of the images that it is cropped from
    channels: int
    seconds: float  # budget of a run
    trial_seconds: float  # and of a trial of the search
    steps: int  # budget of a run in steps
    rate: float  # learning rate as it is
    factor: float  # of that of the second trial
    augmentation: dict  # options of `pipelines.Augmentation`, without crops
    recipe: str  # row of `recipes/best/recommended.yaml`
    # ImageNet's weights, the same numbers on both sides, and their statistics of normalisation.
    pretrained: bool = False
    head_multiplier: float = 1.0  # of the learning rate of the embedding, and of proxies


_PHOTOS = {
    "network": "mobilenet_v2",
    "channels": 3,
    "seconds": 900.0,
    "trial_seconds": 120.0,
    "steps": 300,
    "rate": 1e-4,
    "factor": 0.3,
    "augmentation": {"flip": True},
    "recipe": "photos",
    "pretrained": True,
    "head_multiplier": 10.0,
}
RACES = {
    "omniglot": Race(
        dataset="omniglot",
        folder="tfds",
        network="small_cnn",
        pixels=28,
        stored=28,
        channels=1,
        seconds=300.0,
        trial_seconds=40.0,
        steps=600,
        rate=1e-3,
        factor=2.0,
        augmentation={"rotation": 15.0, "zoom": 0.15, "shift": 0.1},
        recipe="omniglot",
    ),
    "cub200": Race(dataset="cub200", folder="cub200", pixels=128, stored=144, **_PHOTOS),
    "cars": Race(dataset="folder", folder="cars196", pixels=112, stored=128, **_PHOTOS),
}
CLASSES_PER_BATCH, IMAGES_PER_CLASS = 16, 4
VALIDATION_SHARE = 0.2  # of the training classes, the last
SEEDS = [0, 1, 2]
KS = [1, 2, 4, 8]


@dataclasses.dataclass(frozen=True)
class Racer:
    """An objective on one side."""

    built: Built  # as it is
    other: Built  # in the trial of other options
    proxies: bool = False  # whether it learns proxies of the classes
    raw: bool = False  # whether that trial leaves the rows of the network at their lengths
    proxy_factor: float = 1.0  # of the rate of proxies in that trial, beside the head's


def on_both_sides(ours, other, theirs, their_other, **options):
    return {TFDML: Racer(ours, other), PML: Racer(theirs, their_other, **options)}


def with_proxies(ours, other, theirs):
    """PML's third trial learns proxies ten times as fast: they start at random there."""
    return on_both_sides(ours, other, theirs, theirs, proxies=True, proxy_factor=10.0)


def semihard(margin):
    miner = ("TripletMarginMiner", {"margin": margin, "type_of_triplets": "semihard"})
    return peer("TripletMarginLoss", miner, margin=margin)


def multi_similarity(epsilon):
    return peer("MultiSimilarityLoss", ("MultiSimilarityMiner", {"epsilon": epsilon}))


_RAW = {"normalize_embeddings": False}
RACERS = {  # objective -> side -> `Racer`
    "contrastive": on_both_sides(
        tfdml("contrastive", average_over="active"),
        tfdml("contrastive", average_over="active", margin=0.5),
        peer("ContrastiveLoss"),
        peer("ContrastiveLoss", neg_margin=0.5),
    ),
    "triplet, semihard": on_both_sides(
        tfdml("triplet", mining="semihard", margin=0.1),
        tfdml("triplet", mining="semihard", margin=0.2),
        semihard(0.1),
        semihard(0.2),
    ),
    "lifted structure": on_both_sides(
        tfdml("lifted", margin=1),
        tfdml("lifted", margin=2),
        peer("LiftedStructureLoss"),
        peer("LiftedStructureLoss", distance=peer("LpDistance", **_RAW)),
        raw=True,
    ),
    "N-pair": on_both_sides(
        tfdml("npair"),
        tfdml("npair", scale=8),
        peer("NPairsLoss"),
        peer("NPairsLoss", distance=peer("DotProductSimilarity", **_RAW)),
        raw=True,
    ),
    "histogram": on_both_sides(
        tfdml("histogram"),
        tfdml("histogram", num_bins=101),
        peer("HistogramLoss", n_bins=200),
        peer("HistogramLoss"),
    ),
    "multi-similarity": on_both_sides(
        tfdml("multi_similarity"),
        tfdml("multi_similarity", epsilon=0.5),
        multi_similarity(0.1),
        multi_similarity(0.5),
    ),
    "circle": on_both_sides(
        tfdml("circle", scale=80),
        tfdml("circle", scale=40),
        peer("CircleLoss"),
        peer("CircleLoss", gamma=40),
    ),
    "NT-Xent": on_both_sides(
        tfdml("ntxent"),
        tfdml("ntxent", temperature=0.1),
        peer("NTXentLoss"),
        peer("NTXentLoss", temperature=0.1),
    ),
    "SupCon": on_both_sides(
        tfdml("supcon"),
        tfdml("supcon", temperature=0.05),
        peer("SupConLoss"),
        peer("SupConLoss", temperature=0.05),
    ),
    "Smooth-AP": on_both_sides(
        tfdml("smooth_ap"),
        tfdml("smooth_ap", temperature=0.05),
        peer("SmoothAPLoss"),
        peer("SmoothAPLoss", temperature=0.05),
    ),
    "normalized softmax": with_proxies(
        tfdml("norm_softmax"),
        tfdml("norm_softmax", initializer=None),
        peer("NormalizedSoftmaxLoss"),
    ),
    "CosFace": with_proxies(tfdml("cosface"), tfdml("cosface", scale=32), peer("CosFaceLoss")),
    "ArcFace": with_proxies(
        tfdml("arcface"), tfdml("arcface", scale=32, margin=0.3), peer("ArcFaceLoss")
    ),
    "Proxy-Anchor": with_proxies(
        tfdml("proxy_anchor"), tfdml("proxy_anchor", initializer=None), peer("ProxyAnchorLoss")
    ),
    "Proxy-NCA": with_proxies(
        tfdml("proxy_nca"),
        tfdml("proxy_nca", initializer=None),
        peer("ProxyNCALoss", softmax_scale=9),
    ),
    "SoftTriple": with_proxies(
        tfdml("soft_triple"), tfdml("soft_triple", initializer=None), peer("SoftTripleLoss")
    ),
}
AS_IT_IS, OTHER_RATE, OTHER_OPTIONS = "as it is", "other rate", "other options"
TRIALS = (AS_IT_IS, OTHER_RATE, OTHER_OPTIONS)
