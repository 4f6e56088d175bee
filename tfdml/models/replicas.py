"""Training on all devices of a `tf.distribute` strategy, each with a part of every batch."""

import functools

import keras
import tensorflow as tf

from tfdml.models.pair_warnings import WarnWithoutPairs


def fit_replicas(
    model, strategy, batches, *, steps_per_epoch, epochs, initial_epoch=0, callbacks=()
):
    """As `EmbeddingModel.fit`, with a replica of the model on each device of a strategy.

    `keras.Model.fit` cannot train on several workers (keras-team/keras#20585), and takes a batch
    before the first callback runs. `batches` are the rows of this worker. Callbacks see `model`,
    which gets the state of the replicas after every epoch.
    """
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    with strategy.scope():
        config = keras.saving.serialize_keras_object(model)
        replicas = keras.saving.deserialize_keras_object(config)
    _copy_state(model, replicas)
    watching = keras.callbacks.CallbackList(
        [*callbacks, WarnWithoutPairs()],
        model=model,
        epochs=epochs,
        steps=steps_per_epoch,
    )

    @functools.partial(tf.function, autograph=False)
    def update(*batch):
        return strategy.run(replicas.train_step, args=(batch,))

    def step(batch):
        logs = update(*_divided(strategy, batch))
        model.optimizer.iterations.assign(keras.ops.convert_to_numpy(replicas.optimizer.iterations))
        model._met.training.assign(keras.ops.convert_to_numpy(replicas._met.training))
        # Every replica has the loss of the whole batch.
        return {name: strategy.experimental_local_results(log)[0] for name, log in logs.items()}

    remaining, logs = iter(batches), {}
    model.stop_training = False
    watching.on_train_begin()
    for epoch in range(initial_epoch, epochs):
        replicas.reset_metrics()
        watching.on_epoch_begin(epoch)
        for number in range(steps_per_epoch):
            watching.on_train_batch_begin(number)
            logs = step(next(remaining))
            watching.on_train_batch_end(number, logs)
            if model.stop_training:
                break
        _copy_state(replicas, model)
        logs = {name: float(value) for name, value in logs.items()}
        watching.on_epoch_end(epoch, logs)
        if model.stop_training:
            break
    model.optimizer.finalize_variable_values(model.trainable_weights)
    watching.on_train_end(logs)


def _divided(strategy, batch):
    """The rows of a worker as values of a strategy, an even part for each of its devices."""
    devices = len(strategy.extended.worker_devices)
    with tf.device("CPU:0"):
        parts = [tf.split(tensor, devices) for tensor in batch]

    def part_of_replica(context, tensors):
        return tensors[context.replica_id_in_sync_group % devices]

    distribute = strategy.experimental_distribute_values_from_function
    return [distribute(functools.partial(part_of_replica, tensors=each)) for each in parts]


def _copy_state(source, target):
    """Copies weights, random seeds and the optimizer's state; all workers must take part."""
    for old, new in zip(_state(source), _state(target), strict=True):
        new.assign(keras.ops.convert_to_numpy(old))


def _state(model):
    measured = {id(variable) for variable in model.metrics_variables}
    own = [variable for variable in model.variables if id(variable) not in measured]
    return [*own, *model.optimizer.variables]
