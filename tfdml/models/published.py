"""Where the published weights of a backbone are, and how to convert them. Needs no Keras."""

from tfdml.checks import check

_CAFFE = "http://dl.caffe.berkeleyvision.org"
# Backbone -> name of the network, addresses of its published weights.
PUBLISHED = {
    "alexnet": ("CaffeNet", f"{_CAFFE}/bvlc_reference_caffenet.caffemodel"),
    "googlenet": (
        "GoogLeNet",
        f"{_CAFFE}/bvlc_googlenet.caffemodel",
        "https://download.pytorch.org/models/googlenet-1378be20.pth",
    ),
}


def how_to_convert(backbone):
    """Instructions for converting the weights of a backbone of `PUBLISHED`; "" for others."""
    if backbone not in PUBLISHED:
        return ""
    network, *originals = PUBLISHED[backbone]
    converted = f"{network.lower()}.npz"
    return (
        f"download {' or '.join(originals)}, run `python tools/convert_{backbone}.py "
        f"{originals[0].rpartition('/')[2]} {converted}` and give {converted} as `weights`"
    )


def check_colour(image_shape, weights):
    """Rejects images without 3 channels where there are pretrained weights."""
    expectation = "pretrained weights require images of 3 channels"
    channels = image_shape[-1]
    check(weights is None or channels == 3, expectation, weights=weights, channels=channels)
