"""RST-LoRA: low-rank adapters of a LED whose update in the encoder is weighted by discourse.

Pu and Demberg, NAACL 2024: h = W x + (x (1 + gamma)) W_down W_up, where gamma is the labeled discourse distribution
averaged over its second EDU axis: the importance of an EDU as the nucleus of others. The parser averages over all EDUs
of the document, including those beyond the band of the LDD and in truncated text. The adapters are those of `peft`. An
update that depends on the document cannot be merged into the weights.
"""

from torch import Tensor, nn

from lightning_modules.networks.adapters import insert_adapters

# Queries and values, where LoRA was proposed; the decoder's have no EDUs, and no weight.
ENCODER = r".*encoder\.layers\.\d+\.self_attn\.longformer_self_attn\.(query|value)"
DECODER = r".*decoder\.layers\.\d+\.(self_attn|encoder_attn)\.(q_proj|v_proj)"


class DiscourseAdapters:
    """Inserts low-rank adapters into a LED (Longformer encoder-decoder), and freezes all other parameters.

    Updates, times alpha / rank, are weighted in the encoder by 1 + gamma, the importance of the token's EDU (elementary
    discourse unit) as a nucleus, with `no_labels` averaged over relations. The LED has the parameters of the adapters.

    Raises:
        ValueError: if the rank is not positive or `peft` is not installed.
    """

    def __init__(self, led: nn.Module, rank: int, alpha: float, no_labels: bool = False) -> None:
        self.no_labels = no_labels
        self.gamma: Tensor | None = None  # of the tokens of the batch, [B, T]
        insert_adapters(led, rank, alpha, f"{ENCODER}|{DECODER}")
        for name, module in led.named_modules():  # lora_A is W_down, whose input is weighted
            if ".encoder.layers." in name and name.endswith(".lora_A.default"):
                module.register_forward_pre_hook(self._weigh)

    def set_discourse(self, gamma: Tensor | None, token_edu: Tensor, relations: int) -> None:
        """Set gamma of the batch's tokens from gamma of their EDUs, [B, E]; a `ValueError` if it is None."""
        if gamma is None:
            raise ValueError("the adapters are weighted by gamma, which the discourse of the batch lacks")
        # gamma(a) = (1 / E) sum_b sum_l p(a, b, l) for a token in EDU a, 0 for tokens in no EDU (-1)
        weights = gamma.gather(1, token_edu.clamp(min=0)).masked_fill(token_edu < 0, 0)       # [B, T]
        self.gamma = weights / relations if self.no_labels else weights  # a mean over relations instead of the sum

    def _weigh(self, module: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        """Forward pre-hook of an adapter's W_down, D to rank: replace its input x by x (1 + gamma), [B, T, D]."""
        if self.gamma is None:
            raise ValueError("the adapters need discourse; call DiscourseLED.encode, which sets it")
        (x,) = inputs
        return (x * (1 + self.gamma.to(x.dtype)).unsqueeze(-1),)
