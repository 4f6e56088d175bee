"""The weights of a new network of tfdml, {layer/variable: array}, in the order of its layers."""

from tfdml.quiet import import_tensorflow


def prepare(settings, folder):
    import_tensorflow()
    import keras

    import tfdml

    def work():
        keras.utils.set_random_seed(settings["seed"])
        embedder = tfdml.models.build_embedder(
            settings["network"],
            settings["dim"],
            input_shape=settings["shape"],
            weights=settings["pretrained"] and str(folder / settings["pretrained"]),
        )
        return {
            f"{layer.name}/{variable.name}": variable.numpy()
            for layer in embedder.layers
            for variable in layer.weights
            if not variable.path.startswith("seed_generator")
        }

    return work
