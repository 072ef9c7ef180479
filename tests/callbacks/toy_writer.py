"""A writer so small that everything it can write can be listed: what expectations are computed with exactly."""

from itertools import product
from statistics import mean, stdev
from types import SimpleNamespace

import torch
from torch import Tensor, nn

from datamodules.batch import Batch
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.decoding.sampling import rescore, sample
from lightning_modules.metrics.rewards import Reward, RewardInputs
from lightning_modules.summarizer import Samples

STOP, WORD, END, START = range(4)  # the words "x" and ".": the second one ends a sentence
LETTERS = {WORD: "x", END: "."}
LONGEST = 4


class ToyWriter(nn.Module):
    """P(y_t | y_t-1, document): a table of logits for each of two documents, with double precision."""

    language = "en"

    def __init__(self, documents: int = 2) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.randn(documents, 4, 3, generator=torch.Generator().manual_seed(4)).double())
        self.tokenizer = SimpleNamespace(end_ids=lambda marks: [END] if "." in marks else [], stop=STOP)
        self.decoding = DecodingOptions(min_length=0, max_length=LONGEST)
        self.dropout = nn.Dropout(0.5)
        self.step_values: dict[str, Tensor | float] = {}

    def batch(self) -> Batch:
        ids = [f"doc-{i}" for i in range(len(self.logits))]
        return Batch(ids, [[["x x ."]] for _ in ids])

    def sample(self, batch: Batch, options: DecodingOptions) -> Samples:
        def step(tokens, state, memory, count):
            rows = torch.arange(len(tokens)).unsqueeze(1)
            return None, memory["table"][rows, tokens], state

        start = torch.full((len(self.logits),), START)
        made = sample(step, {}, {"table": self.logits.log_softmax(-1)}, start, STOP, options)
        return Samples(made.tokens, made.lengths)

    def log_probs(self, batch: Batch, samples: Samples, options: DecodingOptions | None = None) -> Tensor:
        tokens = samples.tokens
        table = (self.dropout(torch.ones_like(self.logits)) * self.logits).log_softmax(-1)
        before = torch.cat([torch.full_like(tokens[..., :1], START), tokens[..., :-1]], -1)
        rows = torch.arange(len(tokens)).view(-1, 1, 1)
        if options is not None:
            every = table[rows, before].flatten(0, 2)  # [B K T, words]
            return rescore(lambda places: every[places], *samples, STOP, options)
        real = torch.arange(tokens.shape[-1]) < samples.lengths.unsqueeze(-1)
        return table[rows, before, tokens].masked_fill(~real, 0)

    def texts(self, batch: Batch, samples: Samples) -> list[list[str]]:
        pairs = zip(samples.tokens.tolist(), samples.lengths.tolist())
        return [[text_of(ids[:n]) for ids, n in zip(*pair)] for pair in pairs]


def text_of(ids: list[int]) -> str:
    return " ".join(LETTERS[i] for i in ids if i != STOP)


def advantage_of(kind: str, values: list[float], k: int) -> float:
    return {
        "leave_one_out": values[k] - mean(values[:k] + values[k + 1 :]),
        "group_mean": values[k] - mean(values),
        "group": (values[k] - mean(values)) / (stdev(values) + 1e-4),
    }[kind]


def everything() -> list[list[int]]:
    short = [[*words, STOP] for n in range(LONGEST) for words in product((WORD, END), repeat=n)]
    return short + [list(words) for words in product((WORD, END), repeat=LONGEST)]


def padded(sequences: list[list[int]]) -> Samples:
    rows = [ids + [STOP] * (LONGEST - len(ids)) for ids in sequences]
    return Samples(torch.tensor([rows]), torch.tensor([[len(ids) for ids in sequences]]))


class ByTable(Reward):
    """A number for each text, which no rule foresees."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(1)
        texts = sorted({text_of(ids[:n]) for ids in everything() for n in range(LONGEST + 1)})
        self.table = dict(zip(texts, torch.rand(len(texts), generator=generator).tolist()))

    def __call__(self, written: RewardInputs) -> list[float]:
        return [self.table[text] for text in written.texts]
