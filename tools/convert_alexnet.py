"""Converts the published ImageNet weights of CaffeNet to the .npz file that `alexnet` loads.

    python tools/convert_alexnet.py bvlc_reference_caffenet.caffemodel caffenet.npz

The source is http://dl.caffe.berkeleyvision.org/bvlc_reference_caffenet.caffemodel. Train with
--backbone alexnet --weights caffenet.npz, on images of 227 pixels.
"""

from conversion import from_convolution, from_fully_connected, main, read_caffemodel

FC6_MAPS = (256, 6, 6)


def convert(path):
    """{name: array} of Caffe's file without the classifier, checked against the network."""
    import keras

    from tfdml.models.alexnet import alexnet, load_arrays

    arrays = {}
    for layer, (kernel, bias) in read_caffemodel(path).items():
        if layer == "fc8":
            continue
        if layer.startswith("fc"):
            kernel = from_fully_connected(layer, kernel, FC6_MAPS if layer == "fc6" else None)
        else:
            kernel = from_convolution(layer, kernel)
        arrays[f"{layer}/kernel"] = kernel
        arrays[f"{layer}/bias"] = bias.reshape(-1)
    images = keras.Input((227, 227, 3))
    load_arrays(keras.Model(images, alexnet(images)), arrays, path)
    return arrays


if __name__ == "__main__":
    main(convert, __doc__)
