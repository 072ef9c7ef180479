"""What the discourse parser and the EDU segmenter share: a token encoder, its optimizer, and the weights to keep."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pytorch_lightning import LightningModule
from torch import Tensor, nn
from torchmetrics import Metric

from datamodules.batch import Batch
from datamodules.documents import UserError
from datamodules.text.subwords import Subwords
from lightning_modules.discourse_parser.encoders import STORED, TokenEncoderOptions, pretrained_encoder
from lightning_modules.discourse_parser.shipped import SHIPPED, SMALL, weights_folder
from lightning_modules.lightning_internals import trainer_of
from lightning_modules.logged_values import log_mean, log_training
from lightning_modules.networks.text_encoder import SmallEncoder, TextEncoder
from lightning_modules.options import EncoderAdamWOptions
from lightning_modules.schedules import steps_needed, two_rates
from lightning_modules.stored import load_weights, read_settings, save_weights


class EncoderModule(LightningModule):
    """Base class of models over a token encoder, `small` or pretrained.

    `settings` are further arguments of the class, stored with the weights; `metric` makes a metric for each stage.
    """

    main_score: ClassVar[str]  # name of the score of `metric` that the progress bar shows
    parts: ClassVar[tuple[str, ...]]  # prefixes of the weights that are kept besides the trained ones of the encoder
    kind: ClassVar[Literal["discourse_parser", "edu_segmenter"]]  # folder of the weights that come with the suite
    noun: ClassVar[str]  # what messages call the class
    source: str | None = None  # folder or name that `load` was given
    is_english = False  # whether the weights are those of the suite, which are trained on English texts

    def __init__(
        self,
        encoder: TokenEncoderOptions,
        dropout: float,
        optimizer: EncoderAdamWOptions,
        settings: dict[str, Any],
        metric: Callable[[], Metric],
    ) -> None:
        super().__init__()
        self.metrics = nn.ModuleDict({stage: metric() for stage in ("val", "test")})
        # stored with the weights, so that `of_settings` can rebuild the model. `STORED`: stored name -> encoder option
        encoder_settings = {name: getattr(encoder, option) for name, option in STORED.items()}
        self.settings = encoder_settings | {"layers": list(encoder.layers)} | settings  # a list: JSON has no tuples
        self.start_from = encoder.start_from
        self.optimizer = optimizer
        self.subwords = None if encoder.checkpoint == SMALL else Subwords(encoder.checkpoint)  # `small` hashes words
        if self.subwords is None:
            self.encoder: nn.Module = SmallEncoder(window=encoder.window, dropout=dropout)
        else:
            self.encoder = pretrained_encoder(encoder, self.subwords)
        self.vector_cache: dict[str, Tensor] = {}  # vectors of a frozen encoder, by the digest of a text

    @classmethod
    def of_settings(cls, **settings: Any) -> Self:
        """Build a model from the settings of config.json; they may include further arguments of the class."""
        encoder_options = {STORED[name]: settings.pop(name) for name in STORED.keys() & settings.keys()}
        return cls(TokenEncoderOptions(**encoder_options), **settings)

    def setup(self, stage: str) -> None:
        """Initialize the small encoder from the folder `start_from` before training, unless training is resumed."""
        is_resumed = getattr(trainer_of(self), "ckpt_path", None) is not None  # False without a trainer
        if stage != "fit" or self.start_from is None or is_resumed:
            return
        if not isinstance(self.encoder, SmallEncoder):
            start = f"model.encoder.start_from {self.start_from}"
            raise UserError(f"{start}: is for the encoder `small` alone; leave it out")
        load_weights(Path(self.start_from), self.encoder, self.encoder.state_dict())  # all its weights are expected

    @property
    def has_fixed_encoder(self) -> bool:
        """Whether the encoder is frozen, so that its vectors can be cached."""
        return isinstance(self.encoder, TextEncoder) and self.encoder.frozen

    def cached_vectors(self, texts: Sequence[str], compute: Callable[[], Iterable[Tensor]]) -> list[Tensor]:
        """Return the vectors of texts that `compute` returns; of a frozen encoder, cached by digest (`texts`)."""
        if not self.has_fixed_encoder:
            return list(compute())
        if any(digest not in self.vector_cache for digest in texts):
            self.vector_cache |= {digest: vectors.half().cpu() for digest, vectors in zip(texts, compute())}
        # the cache holds float16, converted one by one since autocast on CPUs cannot concatenate float16
        return [self.vector_cache[digest].to(self.device).float() for digest in texts]

    def loss_terms(self, batch: Batch) -> dict[str, Tensor]:
        """Return the terms of the loss, which is their sum."""
        raise NotImplementedError

    def _score(self, batch: Batch, stage: str) -> None:
        """Update the metric of a stage."""
        raise NotImplementedError

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Log the loss terms; return their sum, weighted so that an optimizer step averages over all its batches."""
        terms = self.loss_terms(batch)
        loss = sum(terms.values())
        logged = {name: value.detach() for name, value in {**terms, "loss": loss}.items()}
        log_training(self, logged, batch, prog_bar=terms)
        return loss * batch.loss_weight

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Log the loss and the scores."""
        log_mean(self, "val/loss", sum(self.loss_terms(batch).values()), batch.batch_size)
        self._score(batch, "val")

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        """Compute the scores."""
        self._score(batch, "test")

    def _log_scores(self, stage: str) -> None:
        """Log the scores of a stage over all batches, and reset its metric."""
        for name, value in self.metrics[stage].compute().items():
            self.log(f"{stage}/{name}", value, prog_bar=name == self.main_score)
        self.metrics[stage].reset()

    def on_validation_epoch_end(self) -> None:
        self._log_scores("val")

    def on_test_epoch_end(self) -> None:
        self._log_scores("test")

    def configure_optimizers(self) -> dict[str, Any]:
        """Return AdamW, which decays biases too, and its schedule, with `encoder_lr` for a pretrained encoder."""
        pretrained = None if self.subwords is None else self.encoder
        steps = steps_needed(self.trainer, self.optimizer)
        return two_rates(self, pretrained, self.optimizer, steps, decay_vectors=True)

    def state_to_keep(self) -> dict[str, Tensor]:
        """Return the weights of `parts` (prefixes) and of the encoder, except frozen ones, which are loaded again."""
        trained = {name for name, parameter in self.encoder.named_parameters("encoder") if parameter.requires_grad}
        weights = self.state_dict().items()
        return {name: value for name, value in weights if name in trained or name.startswith(self.parts)}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["state_dict"] = self.state_to_keep()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:  # which lacks frozen weights: keep them
        checkpoint["state_dict"] = {**self.state_dict(), **checkpoint["state_dict"]}

    @classmethod
    def load(cls, folder: Path | str, **options: Any) -> Self:
        """Load a model in eval mode from a folder that `save` wrote, or that comes with the suite (see `SHIPPED`).

        `options` replace stored arguments, or set others, which are not stored, such as `rows` of `DiscourseParser`.
        Raises a `UserError` if the folder holds no such model, its weights do not fit, or its encoder is not installed.
        """
        path = weights_folder(cls.kind, folder)
        settings = read_settings(path)
        try:
            model = cls.of_settings(**settings | options)
        except TypeError as error:  # a stored setting that is no argument of the class
            raise UserError(f"{path}/config.json: not {cls.noun}'s ({error})") from error
        load_weights(path, model, model.state_to_keep())
        model.is_english = str(folder) in SHIPPED  # the weights of the suite are trained on English texts
        model.source = str(folder)  # a segmenter whose option `tuned_by` names this folder has the same encoder
        return model.eval()

    def save(self, folder: Path | str, bits: int = 16) -> None:
        """Write config.json and model.safetensors, matrices in 16 or 8 bits; see `save_weights`."""
        save_weights(Path(folder), self.settings, self.state_to_keep(), bits)
