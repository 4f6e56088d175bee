"""Where the published weights of a backbone are, and how to convert them. Needs no Keras."""

# Backbone -> name of the network, addresses of its published weights, script that converts them.
PUBLISHED = {
    "alexnet": (
        "CaffeNet",
        ("http://dl.caffe.berkeleyvision.org/bvlc_reference_caffenet.caffemodel",),
        "tools/convert_alexnet.py",
    ),
    "googlenet": (
        "GoogLeNet",
        (
            "http://dl.caffe.berkeleyvision.org/bvlc_googlenet.caffemodel",
            "https://download.pytorch.org/models/googlenet-1378be20.pth",
        ),
        "tools/convert_googlenet.py",
    ),
}


def how_to_convert(backbone):
    """Instructions for converting the weights of a backbone of `PUBLISHED`; "" for others."""
    if backbone not in PUBLISHED:
        return ""
    network, originals, script = PUBLISHED[backbone]
    return (
        f"download {' or '.join(originals)}, run `python {script} "
        f"{originals[0].rpartition('/')[2]} {network.lower()}.npz` and give {network.lower()}.npz "
        "as `weights`"
    )
