from tfdml import pairwise
from tfdml.losses.base import register
from tfdml.losses.supcon import SupConLoss


@register("ntxent")
class NTXentLoss(SupConLoss):
    """Normalized temperature-scaled cross-entropy of each positive pair among negatives.

    With z = s / temperature the scaled cosines, t[i, p] = z[i, p] - margin those of positives p,
    and N(i) the rows of other classes:

        loss = mean over positive pairs (i, p) of
               log(exp(t[i, p]) + Σ_{n in N(i)} exp(z[i, n])) - t[i, p]

    As `SINCERELoss`, but the mean is over all pairs at once, so that large classes weigh more.
    Several labels a row weigh pairs as in `SupConLoss`.

    Args:
        temperature: Divisor of the cosines, T; > 0. Published: 0.5 and 0.1.
        margin: Advantage of a positive over negatives, in logits; >= 0. Published: 0.

    Source:
        Chen, Kornblith, Norouzi, Hinton. SimCLR. ICML 2020, eq. 1, for two views of each image.
        Differs: takes all positive pairs of a class; with two rows per class it is the paper's. The
        default temperature is lower, as suits labelled images.
    """

    positives_repel = False

    def __init__(self, *, temperature=0.07, margin=0.0, normalize=True, name="ntxent"):
        super().__init__(temperature=temperature, margin=margin, normalize=normalize, name=name)

    def mean(self, losses, positives):
        return pairwise.masked_mean(losses, positives)
