"""Table of the backbones by name, readable without Keras."""

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

# Those that end in global average pooling.
POOLED = (
    "convnext_tiny",
    "efficientnet_b0",
    "googlenet",
    "inception_v3",
    "mobilenet_v2",
    "resnet50",
)
POOLINGS = ("average", "average+max")

MOST_DIMENSIONS = 65_536  # of an embedding; beyond it TensorFlow may crash for lack of memory
