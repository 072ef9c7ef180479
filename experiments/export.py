"""`precis export`: a trained model in the form of the library that its network comes from."""

from pathlib import Path

from jsonargparse import ArgumentParser

from datamodules.documents import CorpusError
from experiments.run_folder import load_run


def export(arguments: list[str]) -> None:
    """`precis export RUN --out FOLDER`: a run's network and tokenizer as `transformers` saves them."""
    parser = ArgumentParser(prog="precis export", description=export.__doc__, exit_on_error=False)
    parser.add_argument("run", type=Path, help="a run folder")
    parser.add_argument("--out", type=Path, required=True, help="a folder, made if it is not there")
    parser.add_argument("--checkpoint", type=Path | None, default=None, help="another one of the run than its best")
    options = parser.parse_args(arguments)
    out = Path(str(options.out))
    if out.exists() and any(out.iterdir()):
        raise CorpusError(f"{out}: not empty; name another folder")
    checkpoint = Path(str(options.checkpoint)) if options.checkpoint else None
    model = load_run(Path(str(options.run)), checkpoint).model
    if not hasattr(model, "export"):
        raise CorpusError(f"{options.run}: {type(model).__name__} is no model of another library; use its checkpoints")
    model.export(out)
    print(f"{out}: {', '.join(sorted(path.name for path in out.iterdir()))}")
