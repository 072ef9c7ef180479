"""Small copying models, pointer-generators and communicating agents, their batches and their losses by a plain loop."""

from itertools import pairwise

import torch

from datamodules.communicating_agents import CommunicatingAgentsBatch
from datamodules.pointer_generator import PointerGeneratorBatch
from datamodules.text.vocabulary import PAD, START, STOP, UNK, Vocabulary
from lightning_modules.communicating_agents.module import AgentEmbedding, CommunicatingAgents
from lightning_modules.copying_summarizer import CopyingSummarizer, EmbeddingOptions
from lightning_modules.pointer_generator.module import PointerGenerator

V, WORDS = 14, 8  # the output layer has two rows more than the vocabulary has words
SENTENCE_END = 4 + 2
POINTER_GENERATORS = {
    "seq2seq": {"pointer": False, "coverage": False},
    "seq2seq-coverage": {"pointer": False, "coverage": True},
    "pointer": {"pointer": True, "coverage": False},
    "pointer-coverage": {"pointer": True, "coverage": True},
}
AGENTS = {
    "m1": {"agents": 1},
    "m4": {"communication": False, "multi_agent_pointer": False},
    "m5": {"cohesion": 0.1},
    "m7": {"cohesion": 0.1, "contextual_agent_attention": True, "messages": "feed_forward"},
}


def build(name: str = "m5", seed: int = 0, words: int = WORDS, **changes) -> CopyingSummarizer:
    torch.manual_seed(seed)
    if name in AGENTS:
        options = {"embedding": AgentEmbedding(5), "sentence_ends": ("w2",)} | AGENTS[name]
        model = CommunicatingAgents(V, hidden_size=4, **options | changes)
    else:
        model = PointerGenerator(V, EmbeddingOptions(5), hidden_size=4, **POINTER_GENERATORS[name] | changes)
    for parameter in model.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.7)
    model.set_tokenizer(Vocabulary([f"w{i}" for i in range(words)]))
    return model.eval()


def make_batch(name: str = "m5", seed: int = 0) -> PointerGeneratorBatch | CommunicatingAgentsBatch:
    """Three documents, for agents of three parts, two, and one, whose first words the vocabulary lacks."""
    generator = torch.Generator().manual_seed(seed)
    if name in AGENTS:
        agents = AGENTS[name].get("agents", 3)
        lengths = torch.tensor([[4, 3, 3], [5, 4, 0], [2, 0, 0]])[:, :agents]
        oov = torch.tensor([[0, 1, 0], [0, 1, 2], [0, 1, 2]])[:, :agents]
    else:
        lengths, oov = torch.tensor([7, 5, 3]), torch.zeros(3, dtype=torch.long)
    width = int(lengths.max())
    source = torch.randint(4, 4 + WORDS, (*lengths.shape, width), generator=generator)
    source[..., 0] = V + oov
    if source.dim() == 2:
        source[:, 2] = V  # a second time
    source = source.masked_fill(torch.arange(width) >= lengths.unsqueeze(-1), PAD)
    target = torch.randint(4, 4 + WORDS, (3, 6), generator=generator)
    target[:, 1], target[:, 2], target[:, -1] = V, UNK, STOP
    target[-1, -2:] = torch.tensor([STOP, PAD])
    inputs = torch.cat([torch.full((3, 1), START), target[:, :-1]], 1)
    kind = CommunicatingAgentsBatch if name in AGENTS else PointerGeneratorBatch
    return kind(
        ids=["a", "b", "c"], references=[[["w1 w2"]]] * 3, source=source.masked_fill(source >= V, UNK),
        source_extended=source, lengths=lengths, target_input=inputs.masked_fill(inputs >= V, UNK), target=target,
        target_lengths=(target != PAD).sum(1), target_rows=(target != PAD).flatten().nonzero().squeeze(1),
        oov_words=[["zebra", "yak"], ["gnu", "eland"], ["oryx"]],
    )  # fmt: skip


def naive_terms(model: CopyingSummarizer, batch) -> dict[str, torch.Tensor]:
    """Return the loss terms through the full [V + OOV] distribution, by a loop over documents, words and positions."""
    decoded = model.decode(batch, batch.target_input.unsqueeze(1))
    terms = {"nll": 0.0} | {name: 0.0 for name, weight in model.loss_weights.items() if name != "nll" and weight}
    for b in range(3):
        ends, size = [], int(batch.target_lengths[b])
        for t in range(size):
            word = int(batch.target[b, t])
            mixture = torch.nn.functional.pad(model.network.output(decoded.features[b, 0, t]).softmax(-1), (0, 3))
            if model.has_pointer:
                p = decoded.gate[b, 0, t].sigmoid()
                copied = (1 - p) * decoded.attention[b, 0, t]
                mixture = (p * mixture).index_add(0, batch.source_extended[b].flatten(), copied)
            elif word >= V:
                word = UNK
            terms["nll"] = terms["nll"] - mixture[word].log() / size / 3
            if "coverage" in terms:
                terms["coverage"] = terms["coverage"] + decoded.overlap[b, 0, t] / size / 3
            if "cohesion" in terms and word == SENTENCE_END:
                ends.append(decoded.states[b, 0, t])
        for one, other in pairwise(ends):
            terms["cohesion"] = terms["cohesion"] + torch.cosine_similarity(one, other, 0) / 3
    return terms
