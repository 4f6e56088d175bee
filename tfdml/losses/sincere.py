from tfdml.losses.base import register
from tfdml.losses.supcon import SupConLoss


@register("sincere")
class SINCERELoss(SupConLoss):
    """Supervised InfoNCE: softmax of each positive pair among the negatives of its anchor.

    With z = s / temperature the scaled cosines, t[i, p] = z[i, p] - margin those of positives p,
    and N(i) the rows of other classes:

        loss = mean over anchors i of the mean over positives p of
               log(exp(t[i, p]) + Σ_{n in N(i)} exp(z[i, n])) - t[i, p]

    Unlike in `SupConLoss`, positives do not repel each other. Anchors without a positive do not
    count. Several labels a row weigh pairs as there.

    Args:
        temperature: Divisor of the cosines, T; > 0. Published: 0.07.
        margin: Advantage of a positive over negatives, in logits; >= 0. Published: 0.

    Source:
        Feeney, Hughes. SINCERE. 2023, eq. 6.
        Barbano et al. Unbiased supervised contrastive learning. ICLR 2023: ε-SupInfoNCE.
        Differs: with a margin it is larger than ε-SupInfoNCE by the margin, a constant; anchors
        without a positive do not count, where the authors' code averages over all rows.
    """

    positives_repel = False

    def __init__(self, *, temperature=0.07, margin=0.0, normalize=True, name="sincere"):
        super().__init__(temperature=temperature, margin=margin, normalize=normalize, name=name)
