"""`precis baseline`: summaries by untrained baselines, pretrained summarizers and chat models."""

from importlib import import_module

# Baselines with options of their own; all others are untrained, see `untrained`.
KINDS = {
    "hf": "precis.baselines.hugging_face:hugging_face",
    "chat": "precis.baselines.chat:chat",
}


def baseline(arguments: list[str]) -> None:
    """Run the command of a kind of baseline, which is the first argument."""
    path = KINDS.get(arguments[0] if arguments else "", "precis.baselines.untrained:untrained")
    module, _, name = path.partition(":")
    getattr(import_module(module), name)(arguments[1:] if path in KINDS.values() else arguments)
