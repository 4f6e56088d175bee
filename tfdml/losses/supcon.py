from tfdml.losses._softmax import SoftmaxLoss
from tfdml.losses.registry import register


@register("supcon")
class SupConLoss(SoftmaxLoss):
    """Supervised contrastive loss: softmax of each positive pair among all pairs of its anchor.

    With s the cosines, z[i, p] = s[i, p] / temperature - margin for positives p, z[i, n] =
    s[i, n] / temperature for rows n of other classes, and A(i) all rows but i:

        loss = mean over anchors i of the mean over positives p of
               weight[i, p] (log Σ_{a in A(i)} exp(z[i, a]) - z[i, p])

    The other positives are in the denominator, so that positives also repel each other. Anchors
    without a positive do not count.

    The weight is 1 for two rows of one class. With several labels a row, it is the number of labels
    that both rows have over the number that either has; rows that share a label are positives,
    all others negatives, among them rows without labels.

    Args:
        temperature: Divisor of the cosines, T; > 0. Published: 0.1.
        margin: Advantage that a positive must have over all other pairs, in logits; >= 0. 0 for the
            published loss.
        normalize: Whether rows are scaled to unit length first.
        name: Name of the loss in logs.

    Call:
        labels: (batch,) integers, one class id per row; or (batch, num_labels) integers, 1 for each
            label of a row and 0 elsewhere.
        embeddings: (batch, dim) floats; made unit length unless `normalize=False`.
        Returns a scalar float32; 0 when the batch holds no positive pair.

    Raises:
        TypeError, ValueError: For wrong inputs, as `MetricLoss`, or a wrong option.

    Source:
        Khosla et al. Supervised contrastive learning. NeurIPS 2020, eq. 2 (L_out).
        Barbano et al. Unbiased supervised contrastive learning. ICLR 2023: the margin (ε-SupCon).
        Differs: a mean over the anchors, where eq. 2 prints a sum; without the factor
        temperature / 0.07 of the code of both.
        With a margin it is larger than ε-SupCon by the margin, a constant.

    Example:
        >>> loss = SupConLoss(temperature=1.0)
        >>> rows = np.array([[1., 0.], [0., 1.], [1., 0.]])
        >>> print(round(float(loss(np.array([0, 0, 1]), rows)), 4))
        1.0032
    """

    positives_repel = True

    def __init__(self, *, temperature=0.1, margin=0.0, normalize=True, name="supcon"):
        super().__init__(temperature=temperature, margin=margin, normalize=normalize, name=name)
