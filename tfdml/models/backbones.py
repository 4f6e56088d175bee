"""Tables of the backbones by name, readable without Keras."""

import os

from tfdml.checks import check, unknown_name

# Names for `--backbone` and `build_embedder`: name -> (module of this package with a function of
# that name, its largest number of levels).
BACKBONES = {
    "alexnet": ("alexnet", 1),
    "convnext_tiny": ("applications", 3),
    "efficientnet_b0": ("applications", 3),
    "googlenet": ("googlenet", 3),
    "inception_v3": ("applications", 3),
    "mobilenet_v2": ("applications", 3),
    "resnet50": ("applications", 3),
    "small_cnn": ("small_cnn", 3),
}


def most_levels(backbone):
    """The largest number of levels of a backbone, 1 for those of `hub`; rejects other names."""
    if ":" in backbone:
        return 1
    if backbone not in BACKBONES:
        raise ValueError(unknown_name("backbone", backbone, [*BACKBONES, "hub:PRESET"]))
    return BACKBONES[backbone][1]


def is_pretrained(backbone, weights):
    """Whether the network starts from trained weights: a preset has its own."""
    return weights is not None or backbone.startswith("hub:")


# Those that end in global average pooling.
POOLED = tuple(name for name in BACKBONES if name not in ("alexnet", "small_cnn"))
POOLINGS = ("average", "average+max")

MOST_DIMENSIONS = 65_536  # of an embedding; beyond it TensorFlow may crash for lack of memory

CONVERTED = ("alexnet", "googlenet")  # whose published weights are not of Keras


def check_weights(backbone, weights):
    """Rejects weights that a backbone does not take, and files that there are not."""
    takes = backbone != "small_cnn" and ":" not in backbone
    expectation = "`weights` must be None for small_cnn, presets and functions"
    check(weights is None or takes, expectation, weights=weights, backbone=backbone)
    converted, kind = backbone in CONVERTED, "an existing file"
    if weights in (None, None if converted else "imagenet"):
        return
    if converted:
        hint = f"python tools/convert_{backbone}.py makes it of what docs/reproduce.md links to"
        kind = f"a converted .npz file: {hint}"
    if not os.path.isfile(weights):
        raise FileNotFoundError(f"`weights` must be {kind}. Received: weights={weights!r}")
    fits = not converted or str(weights).endswith(".npz")
    check(fits, f"`weights` must be {kind}", weights=weights)


def check_colour(image_shape, weights, backbone):
    """Rejects images without 3 channels where there are pretrained weights."""
    expectation, channels = "pretrained weights require images of 3 channels", image_shape[-1]
    fits = channels == 3 or not is_pretrained(backbone, weights)
    check(fits, expectation, weights=weights, channels=channels, backbone=backbone)
