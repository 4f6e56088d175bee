import dataclasses

from keras import ops

from tfdml.checks import check, check_integer, check_positive, check_type
from tfdml.layers import EmbeddingMemory
from tfdml.losses._wrapped import WrappedLoss
from tfdml.losses.base import PairLoss, register
from tfdml.losses.batch import References


@register("memory")
class CrossBatchMemoryLoss(WrappedLoss):
    """A pair objective on the batch, and on the batch against the embeddings of earlier batches.

        loss = base(batch, batch) + weight * base(batch, memory)

    The memory holds the last `size` embeddings, without gradient, those of the batch among them; a
    row is never paired with itself. It is written and read in training only, and saved with the
    model: outside training the loss is that of `base` on the batch.

    Args:
        base: As for `RegularizedLoss`, a `PairLoss`.
        size: Embeddings in the memory; at least a batch. Published: up to the training set.
        start_step: Training steps before the memory is used, when embeddings move slowly; >= 0.
        weight: Factor of the second part; > 0.

    Attributes:
        layer: `EmbeddingMemory`; built by `EmbeddingModel` or the first call.

    Call:
        As `base`, of any labels but -2**31, which marks an empty place; on JAX they must fit 32
        bits.

    Raises:
        TypeError: If `base` is no objective over pairs.
        ValueError: If a batch exceeds the memory.

    Source:
        Wang, Zhang, Huang, Scott. Cross-batch memory for embedding learning. CVPR 2020.
        Differs: both parts are averaged as `base` is, where theirs grows with the memory.

    Example:
        >>> loss = CrossBatchMemoryLoss(base="contrastive", size=4, start_step=0)
        >>> rows = np.array([[1., 0.], [0., 1.]])
        >>> _ = loss(np.array([0, 1]), rows, training=True)
        >>> print(loss.layer.labels.numpy()[:2].tolist())
        [0, 1]
    """

    def __init__(self, *, base, size, start_step=1000, weight=1.0, name="memory"):
        super().__init__(base, name=name)
        is_over_pairs = isinstance(self.base, PairLoss)
        check_type(is_over_pairs, "`base` must be an objective over pairs", base=base)
        expectation = "`base` must compare all pairs: no option may choose pairs within a batch"
        check(self.base.takes_references, expectation, base=self.base.get_config())
        [self.start_step] = check_integer(0, start_step=start_step)
        [self.weight] = check_positive(weight=weight)
        self.memory = EmbeddingMemory(size)
        self.size = self.memory.size

    @property
    def traits(self):
        return dataclasses.replace(super().traits, compares_batches=True)

    @property
    def layers(self):
        return [*self.base.layers, self.memory]

    def check_run(self, *, rows, steps, **run):
        super().check_run(rows=rows, steps=steps, **run)
        self.memory.check_batch(rows)
        expectation = "`start_step` must be below the steps, or the memory is never used"
        begins = steps == 0 or self.start_step < steps
        check(begins, expectation, start_step=self.start_step, steps=steps)

    def call(self, batch):
        own = self.base.call(batch)
        if not batch.training:
            return own
        memory, rows = self.memory, batch.embeddings
        labels = ops.cast(batch.labels, memory.labels.dtype)
        places = memory(rows, labels)
        held = ops.convert_to_tensor(memory.labels), ops.cast(memory.rows, rows.dtype)
        others = References(*held, places)
        against = self.base.call(dataclasses.replace(batch, labels=labels, others=others))
        begun = ops.cast(memory.steps > self.start_step, own.dtype)
        return own + self.weight * begun * against
