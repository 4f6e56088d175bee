"""The objectives that tfdml and a peer both have, with arguments under which they are the same.

A new one is one entry: how tfdml builds it, how each peer does, and why they differ if they do.
"""

import dataclasses

from benchmarks.peers.case import KERAS, OML, PML
from tfdml.losses.index import IMPLIED, LOSSES


@dataclasses.dataclass(frozen=True)
class Built:
    """How a side builds an objective: its name there, options and, at PML and OML, a miner.

    An option may be `Built` itself, such as a distance.
    """

    name: str
    options: dict = dataclasses.field(default_factory=dict)
    miner: tuple | None = None  # its class and options

    def __str__(self):
        name, implied = self.name, {}
        if name in LOSSES:
            name, implied = LOSSES[name], IMPLIED[name]
        text = call(name, {**implied, **self.options})
        return f"{text} with {call(*self.miner)}" if self.miner else text


@dataclasses.dataclass(frozen=True)
class Objective:
    """An objective of several sides.

    Args:
        tfdml: `Built` of tfdml.
        peers: Side -> `Built` of it.
        centers: Proxies of each class; 0 if it has none.
        memory: Rows of its memory of earlier batches; 0 if it has none.
        differs: Side -> why its value is another.
        note: What to know of the arguments.
    """

    tfdml: Built
    peers: dict
    centers: int = 0
    memory: int = 0
    differs: dict = dataclasses.field(default_factory=dict)
    note: str = ""


def call(name, options):
    """A call as its library writes it."""
    given = (
        f"{option}={value if isinstance(value, Built) else repr(value)}"
        for option, value in options.items()
    )
    return f"{name}({', '.join(given)})"


def tfdml(name, **options):
    return Built(name, options)


def peer(name, miner=None, **options):
    return Built(name, options, miner)


ALL_TRIPLETS = {"squared": False, "average_over": "active"}
_MEANS = (
    "PML adds the mean of the active positive and that of the active negative pairs; tfdml divides "
    "the sum of both by their number"
)
OBJECTIVES = {
    "contrastive": Objective(
        tfdml("contrastive", squared=False, average_over="active"),
        {PML: peer("ContrastiveLoss")},
        differs={PML: _MEANS},
        note="tfdml's default squares distances",
    ),
    "triplet, all": Objective(
        tfdml("triplet", margin=0.05, **ALL_TRIPLETS),
        {PML: peer("TripletMarginLoss", margin=0.05)},
        note="tfdml's defaults: margin 1, squared distances, mean over all triplets",
    ),
    "triplet, all, raw rows": Objective(
        tfdml("triplet", margin=0.05, squared=False, normalize=False),
        {OML: peer("TripletLossWithMiner", ("AllTripletsMiner", {}), margin=0.05)},
    ),
    "triplet, hard": Objective(
        tfdml("triplet", margin=0.05, mining="hard", **ALL_TRIPLETS),
        {PML: peer("TripletMarginLoss", ("BatchHardMiner", {}), margin=0.05)},
    ),
    "triplet, hard, raw rows": Objective(
        tfdml("triplet", margin=0.05, mining="hard", squared=False, normalize=False),
        {OML: peer("TripletLossWithMiner", ("HardTripletsMiner", {}), margin=0.05)},
    ),
    "triplet, semihard": Objective(
        tfdml("triplet", margin=0.05, mining="semihard", **ALL_TRIPLETS),
        {
            PML: peer(
                "TripletMarginLoss",
                ("TripletMarginMiner", {"margin": 0.05, "type_of_triplets": "semihard"}),
                margin=0.05,
            )
        },
        differs={
            PML: "PML takes all semihard negatives of a pair, tfdml the nearest, or the farthest "
            "negative where there is none"
        },
    ),
    "lifted structure": Objective(
        tfdml("lifted", normalize=True),
        {PML: peer("LiftedStructureLoss")},
        note="tfdml's defaults: raw rows, margin 30",
    ),
    "N-pair": Objective(
        tfdml("npair", pairs="first", scale=1),
        {PML: peer("NPairsLoss")},
        note="tfdml's defaults: all pairs, scale 16",
    ),
    "histogram": Objective(
        tfdml("histogram", num_bins=101),
        {PML: peer("HistogramLoss", n_bins=100)},
        note="bins there, nodes here",
    ),
    "multi-similarity": Objective(
        tfdml("multi_similarity", epsilon=None),
        {PML: peer("MultiSimilarityLoss")},
        note="`base` is `threshold`",
    ),
    "multi-similarity, mined": Objective(
        tfdml("multi_similarity"),
        {PML: peer("MultiSimilarityLoss", ("MultiSimilarityMiner", {"epsilon": 0.1}))},
        note="the miner is part of the loss",
    ),
    "circle": Objective(
        tfdml("circle", scale=80),
        {PML: peer("CircleLoss"), KERAS: peer("Circle")},
        differs={
            KERAS: "Keras differentiates the weights of the pairs too, which the paper keeps "
            "fixed; the values are equal"
        },
        note="`m`, `gamma` are `margin`, `scale`; tfdml's default scale is 16",
    ),
    "NT-Xent": Objective(
        tfdml("ntxent"),
        {PML: peer("NTXentLoss")},
        note="also with more than two rows of a class",
    ),
    "SupCon": Objective(tfdml("supcon"), {PML: peer("SupConLoss")}),
    "Smooth-AP": Objective(
        tfdml("smooth_ap", rank_self=True),
        {PML: peer("SmoothAPLoss")},
        differs={
            PML: "of P classes with K rows each, PML ranks within K groups of P successive rows as "
            "if they were the classes; with P = K, where both are the same, the values are equal"
        },
    ),
    "hard pairs": Objective(
        tfdml("hard_contrastive", squared=False, mine_positives=True),
        {PML: peer("ContrastiveLoss", ("HDCMiner", {"filter_percentage": 0.5}))},
        differs={PML: f"{_MEANS}; the pairs are the same, up to the rounding of their number"},
    ),
    "memory of 8,192": Objective(
        tfdml("memory", base={"name": "multi_similarity", "epsilon": None}, size=8192),
        {PML: peer("CrossBatchMemory", loss=peer("MultiSimilarityLoss"), memory_size=8192)},
        memory=8192,
        note="compared with the loss within the batch added, as here; `start_step=1000` delays the "
        "memory here",
    ),
    "normalized softmax": Objective(
        tfdml("norm_softmax", scale=20),
        {PML: peer("NormalizedSoftmaxLoss", temperature=0.05)},
        centers=1,
    ),
    "CosFace": Objective(tfdml("cosface"), {PML: peer("CosFaceLoss")}, centers=1),
    "ArcFace": Objective(
        tfdml("arcface", margin=0.49916),
        {PML: peer("ArcFaceLoss", margin=28.6), OML: peer("ArcFaceLoss", m=0.49916)},
        centers=1,
        note="degrees at PML, radians here, default 0.5",
    ),
    "sub-center ArcFace": Objective(
        tfdml("sub_center_arcface", margin=0.49916),
        {PML: peer("SubCenterArcFaceLoss", sub_centers=3, margin=28.6)},
        centers=3,
    ),
    "Proxy-Anchor": Objective(
        tfdml("proxy_anchor", scale=32), {PML: peer("ProxyAnchorLoss", alpha=32)}, centers=1
    ),
    "Proxy-NCA": Objective(
        tfdml("proxy_nca", scale=2),
        {PML: peer("ProxyNCALoss", softmax_scale=1)},
        centers=1,
        note="of squared distances there, of cosines here; tfdml's default is 18",
    ),
    "SoftTriple": Objective(
        tfdml("soft_triple", centers=10, scale=20, weight=0),
        {PML: peer("SoftTripleLoss", centers_per_class=10, la=20)},
        centers=10,
        note="tfdml's default adds the distances between centers, `weight=0.2`",
    ),
}
