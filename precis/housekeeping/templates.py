"""Files of the projects that `precis init` makes."""

_POINTER_GENERATOR = """
seed_everything: 1
model:
  class_path: lightning_modules.PointerGenerator
  init_args:
    vocab_size: 20000
    embedding_size: 128
    hidden_size: 128
    dropout: 0.2
    val_summaries: 200
    decoding: {beam_size: 4, min_length: 4, max_length: 60, no_repeat_ngram: 3}
data:
  class_path: datamodules.PointerGeneratorData
  init_args:
    max_source: 400
    max_target: 60
    batch_size: 16
optimizer:
  class_path: torch.optim.Adam
  init_args: {lr: 0.002}
trainer:
  max_epochs: 5
  gradient_clip_val: 2.0
"""

_BERTSUM = """
seed_everything: 1
model:
  class_path: lightning_modules.BertSum
  init_args:
    encoder: minilm
    vocab_size: 30522
    pooling: mean
    loss: soft_labels
    inter_layers: 2
    inter_size: 1024
    encoder_learning_rate: 0.00005
    learning_rate: 0.0003
    selection: {selector: trigram_blocking, k: 3}
data:
  class_path: datamodules.ExtractiveData
  init_args:
    batch_size: 16
trainer:
  max_epochs: 3
  gradient_clip_val: 1.0
"""

TEMPLATES = {"pointer_generator": _POINTER_GENERATOR, "bertsum": _BERTSUM}

README = """# A project of Précis

    precis corpus --corpus Files --corpus.train data/train.jsonl   # look at the records
    precis fit --config config.yaml --dry-run                      # shapes, memory and time; no run folder
    precis fit --config config.yaml --run_dir runs/first
    precis test --run runs/first
    precis runs
    precis summarize --checkpoint runs/first article.txt

`config.yaml` names the records. Each has an `id`, a `document` and a `summary`; other names of fields are options of
`data.init_args.corpus.init_args`.
"""
