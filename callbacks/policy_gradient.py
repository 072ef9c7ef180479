"""Terms of a policy gradient for each token: clipped importance ratios, and the divergence from a reference model."""

from torch import Tensor


def clipped_gain(log_probs: Tensor, old_log_probs: Tensor, advantage: Tensor, clip: tuple[float, float]) -> Tensor:
    """Return min(rho A, clamp(rho, 1 - lower, 1 + upper) A) of each token, with rho = P(token) / P_old(token).

    See PPO, Schulman et al. 2017 (arXiv 1707.06347, equation 7); separate limits as in DAPO (arXiv 2503.14476). At
    rho = 1 its gradient is that of A log P(token). All tensors are [B, K, T].
    """
    ratio = (log_probs - old_log_probs).exp()
    lower, upper = clip
    return (ratio * advantage).minimum(ratio.clamp(1 - lower, 1 + upper) * advantage)


def divergence(log_probs: Tensor, reference: Tensor) -> Tensor:
    """Return the estimate Q/P - log(Q/P) - 1 of KL(P || Q) at each token, [B, K, T]; Q is the reference.

    It is k3 of http://joschu.net/blog/kl-approx.html, as in GRPO (arXiv 2402.03300, equation 4): never negative, and
    unbiased for samples of P. Its gradient is, on average over samples of P, that of KL(Q || P) at each token.
    """
    difference = reference - log_probs
    return difference.exp() - difference - 1
