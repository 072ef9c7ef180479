"""Data of RSTformer: subwords, the EDU of each, and the discourse between EDUs that a window can reach."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import datasets
import torch
from pytorch_lightning.utilities import rank_zero_info
from torch import Tensor

from datamodules.batch import Batch, pad
from datamodules.corpora.corpus import Corpus, as_document
from datamodules.discourse.cache import ParseCache
from datamodules.discourse.controls import OtherDocuments, RandomTable, document_seed, evenly_spread, permute_pairs
from datamodules.discourse.distributions import Rows, band_gamma, decode, resize, tree_gamma
from datamodules.discourse.distributions import encode as encode_ldd
from datamodules.discourse.parses import DiscourseParse, ParseRequest
from datamodules.documents import CorpusError, Document
from datamodules.encoder_data import TokenizerData
from datamodules.parsing import NeedsParser, Parser, key_of, parse_missing
from datamodules.text.subword_text import SubwordText
from datamodules.truncation import COLUMN, count_source, sentences_read, text_limits, truncate_target

Ablation = Literal["none", "wac", "ria", "permuted", "other", "no_labels", "one_best", "no_discourse"]
_BAND = 128  # of a parser that is given by its name, as in `precis parse`
_OTHERS = 64  # training documents whose discourse `other` gives to all documents
_OTHERS_FOLDER = "other_documents"  # of their parses, beside the tokenizer of a run


def reach(token_edu: Tensor, window: int) -> int:
    """EDUs between a token's and the farthest one in its window, at most over the tokens of one document.

    Args:
        token_edu: EDU of each token in order, -1 where there is none, [S].
        window: tokens to each side.
    """
    highest = token_edu.cummax(0).values  # EDUs follow each other
    last = (torch.arange(len(token_edu)) + window).clamp(max=len(token_edu) - 1)
    apart = (highest[last] - token_edu)[token_edu >= 0]
    return int(apart.max()) if len(apart) else 0


@dataclass
class RSTformerBatch(Batch):
    """Documents and summaries as ids, with discourse.

    Attributes:
        source: <s>, the document and </s>, [B, S].
        source_mask: 1 at tokens, 0 at padding, [B, S].
        global_mask: 1 at the first token, which sees all and is seen by all, [B, S].
        token_edu: EDU of each token, -1 for special tokens and text in no EDU, [B, S].
        ldd: codes of the LDD's band, see `distributions.decode`, uint8 [B, E, 2b + 1, R]; None without discourse.
        gamma: how much the document leans on each EDU as a nucleus, see `DiscourseParse`, float32 [B, E]; None without
            discourse.
        target_input: what the decoder reads, </s> first, [B, T].
        target: the summary and </s>, [B, T].
        target_mask: 1 at tokens of the target, [B, T].
    """

    source: Tensor
    source_mask: Tensor
    global_mask: Tensor
    token_edu: Tensor
    ldd: Tensor | None
    gamma: Tensor | None
    target_input: Tensor
    target: Tensor
    target_mask: Tensor


class RSTformerData(NeedsParser, TokenizerData):
    """Documents cut to `max_source` subwords, first references to `max_target`, and their discourse.

    Parses are taken from a folder, where `precis parse` leaves them. Where none is named, documents without a parse are
    parsed when the data is prepared. Validation and test score against all references; the loss reads the first one.

    Args:
        vocab_size: tokens of a tokenizer that is trained on the corpus, 260 or more; with `checkpoint` its tokenizer's
            tokens are at most as many.
        checkpoint: name or folder of a pretrained LED whose tokenizer is used.
        parser: whose parses: a parser, or its name as in `precis parse --parser`; not needed with `no_discourse`.
        rows: reading of the LDD that a parser gives which is named, as in `precis parse --rows`.
        parses: folder of parses, of all training and validation documents; if not given, `parses` in the cache.
        ablation: as the model's. `one_best` is the LDD of the best tree; `ria` a random one, the same everywhere;
            `permuted` the document's own with its values at other pairs of EDUs; `other` that of another document, one
            of 64 from the training split, which a run keeps in its folder. See `discourse.controls`.
        ablation_seed: seed of `ria`, `permuted` and `other`.
        random_values: of `ria`: `dense`, or `sparse` as the parser's own.
        max_source: tokens of a document, <s> and </s> included; at most the model's positions.
        max_target: tokens of a summary in the loss, </s> included.
        half_width: EDUs to each side whose relations are handed on; at most what the parser gives.

    The other arguments are those of `SummarizationData`.
    """

    batch_type, text_type, text_kind = RSTformerBatch, SubwordText, "subwords"

    def __init__(
        self,
        corpus: Corpus,
        vocab_size: int = 16_000,
        checkpoint: str | None = None,
        parser: Parser | str | None = None,
        parses: Path | None = None,
        rows: Rows = "side",
        ablation: Ablation = "none",
        ablation_seed: int = 0,
        random_values: Literal["dense", "sparse"] = "dense",
        max_source: int = 1024,
        max_target: int = 128,
        half_width: int = 64,
        batch_size: int = 8,
        **shared: Any,
    ) -> None:
        super().__init__(corpus, batch_size, **shared)
        if max_source < 3 or max_target < 2 or half_width < 1:
            given = f"{max_source}, {max_target}, {half_width}"
            raise ValueError(f"data.max_source is at least 3, max_target 2, half_width 1; got {given}")
        if parser is None and ablation != "no_discourse":
            raise ValueError("data.parser is missing: name one, or set ablation to no_discourse")
        self.vocab_size, self.checkpoint, self.ablation = vocab_size, checkpoint, ablation
        self.rows = rows
        self._parser = None if ablation == "no_discourse" else parser
        if half_width > getattr(self._parser, "band", half_width):
            raise ValueError(f"data.half_width {half_width}: the parser gives {self.parser.band} EDUs to each side")
        self.ablation_seed, self.random_values = ablation_seed, random_values
        self.max_source, self.max_target, self.half_width = max_source, max_target, half_width
        self.parses, self.parses_given = Path(parses or self.cache_dir / "parses"), parses is not None
        self._cache: ParseCache | None = None
        self._random: RandomTable | None = None
        self._others: OtherDocuments | None = None

    @property
    def parser(self) -> Parser | None:
        """Whose parses; None without discourse. A name becomes a parser when it is asked for.

        Raises:
            CorpusError: if there is no parser of that name.
        """
        if isinstance(self._parser, str):
            self._parser = self.parser_named(self._parser, self.rows, max(_BAND, self.half_width))
        return self._parser

    @property
    def cache(self) -> ParseCache:
        """The folder of parses."""
        if self._cache is None:
            self._cache = ParseCache(self.parses)
        return self._cache

    # Features ----------------------------------------------------------------------------------------------------

    def feature_settings(self) -> dict[str, Any]:
        by = None if self.parser is None else [self.parser.fingerprint, self.parser.rows, self.parser.band]
        return {"max_source": self.max_source, "max_target": self.max_target, "parser": by}

    def truncation_limits(self) -> dict[str, str]:
        return text_limits(self.max_source, self.max_target)

    def encode(self, document: Document) -> dict[str, Any]:
        all_ids, all_offsets = self.text(document.text)
        ids, offsets = all_ids[: self.max_source - 2], all_offsets[: self.max_source - 2]
        reference = self.text(" ".join(document.reference))[0]
        target, target_counts = truncate_target(reference, self.max_target, self.text.stop)
        counts = count_source(document, len(ids), len(all_ids), sentences_read(document, all_offsets, len(ids)))
        request = ParseRequest.of(document)
        return {
            "source": [self.text.start, *ids, self.text.stop],
            "starts": [0, *(start for start, _ in offsets), 0],
            "ends": [0, *(end for _, end in offsets), 0],
            "target": target,
            # empty documents have no discourse
            "parse": "" if self.parser is None or request.empty else key_of(request, self.parser),
            "length": len(ids) + 2,
            COLUMN: counts | target_counts,
        }

    def _alone(self) -> "RSTformerData":
        alone = super()._alone()
        alone._cache = alone._random = alone._others = None
        return alone

    def features(self, split: str) -> datasets.Dataset:
        """As in `SummarizationData`; parses that are missing are made with them."""
        fresh = split not in self._features
        features = super().features(split)
        if fresh and self.parser is not None:
            keys, table = features["parse"][:], self.documents(split)
            missing = set(self.cache.missing([key for key in keys if key]))
            if missing:
                wanted = [as_document(table[row]) for row, key in enumerate(keys) if key in missing]
                self._announce(split, wanted)
                parse_missing(wanted, self.cache, self.parser)
            if self.ablation == "other" and self._others is None:
                self._others = OtherDocuments(self._other_parses(), self.ablation_seed)
        return features

    def _other_parses(self) -> list[DiscourseParse]:
        """Parses that `other` chooses from: those that the run has kept, in training those of the training split."""
        kept = None if self.text_dir is None else Path(self.text_dir) / _OTHERS_FOLDER
        training = self.trainer is not None and self.trainer.state.fn == "fit"
        if kept is not None and kept.is_dir() and not training:
            cache = ParseCache(kept)
            return [cache.get(key) for key in cache]
        sizes = {key: self.cache.size(key) for key in set(self.features("train")["parse"][:]) if key}
        return [self.cache.get(key) for key in evenly_spread(sizes, _OTHERS)]

    def loaded_splits(self) -> list[str]:
        """Splits whose features are there."""
        return list(self._features)

    def widest_reach(self, split: str, window: int) -> tuple[int, str]:
        """EDUs between a token's and the farthest one in its window, at most over the documents of a split.

        Args:
            split: whose documents.
            window: tokens to each side.

        Returns:
            Their number and the document's id; 0 and an empty id if no document has more EDUs than `half_width` to each
            side, which no window can leave then.
        """
        widest, name = 0, ""
        features = self.features(split)
        keys = features["parse"][:]
        long = [row for row, key in enumerate(keys) if key and self.cache.size(key) - 1 > self.half_width]
        for row in features.select(long).with_format("torch", columns=["starts", "ends"], output_all_columns=True):
            parse = self.cache.get(row["parse"], row["id"])
            edus = parse.align(torch.stack([row["starts"], row["ends"]], 1))          # [S]
            if (found := reach(edus, window)) > widest:
                widest, name = found, row["id"]
        return widest, name

    def save_text(self, folder: Path) -> None:
        """As in `SummarizationData`; with `other`, also the parses that it chooses from."""
        super().save_text(folder)
        if self._others is None:
            return
        parses = {parse.text_digest: parse for parse in self._others.parses}
        cache = ParseCache(Path(folder) / _OTHERS_FOLDER)
        missing = cache.missing(parses)
        with cache.writer() as writer:
            for key in missing:
                writer.add(key, parses[key])

    def _announce(self, split: str, missing: list[Document]) -> None:
        """Says which documents of a split have no parse; in training, a folder that was named has to have them all.

        Raises:
            CorpusError: in that case.
        """
        ids = ", ".join(document.id for document in missing[:3]) + (", ..." if len(missing) > 3 else "")
        ids = f"{len(missing):,} documents of {split} ({ids})"
        lacks = f"{self.parses}: no parse of {ids} by this parser, with its band"
        if self.parses_given and split in ("train", "val"):
            raise CorpusError(
                f"{lacks} of {self.parser.band} EDUs; run `precis parse` with this folder as --out, this --parser and "
                f"--band {self.parser.band}, or leave data.parses out to have them parsed now"
            )
        rank_zero_info(f"{lacks}; they are parsed now")

    # Batches -----------------------------------------------------------------------------------------------------

    def collate(self, rows: list[dict[str, Any]]) -> RSTformerBatch:
        source, target = pad([row["source"] for row in rows], self.text.pad), pad([row["target"] for row in rows], -1)
        mask = torch.arange(source.shape[1]) < torch.tensor([len(row["source"]) for row in rows])[:, None]
        global_mask = torch.zeros_like(source)
        global_mask[:, 0] = 1
        token_edu, ldd, gamma = self.discourse(rows, source.shape[1])
        real = target >= 0
        target = target.masked_fill(~real, self.text.pad)
        shifted = torch.cat([torch.full_like(target[:, :1], self.text.stop), target[:, :-1]], 1)
        return RSTformerBatch(
            ids=[row["id"] for row in rows],
            references=[row["references"] for row in rows],
            source=source,
            source_mask=mask.long(),
            global_mask=global_mask,
            token_edu=token_edu,
            ldd=ldd,
            gamma=gamma,
            target_input=shifted,
            target=target,
            target_mask=real.long(),
        )

    def discourse(
        self, rows: list[dict[str, Any]], width: int
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """EDUs of tokens [B, S]; codes of the LDD [B, E, 2b + 1, R] and gamma [B, E] of the EDUs that tokens are in.

        Raises:
            MissingParse: if there is no parse of a document.
            CorpusError: if a parse is of another text or has other relations than the rest.
        """
        token_edu = torch.full((len(rows), width), -1)
        if self.parser is None:
            return token_edu, None, None
        bands: dict[int, Tensor] = {}
        gammas: dict[int, Tensor] = {}
        for n, row in enumerate(rows):
            if not row["parse"]:
                continue
            parse = self.cache.get(row["parse"], row["id"])
            edus = parse.align(torch.tensor([row["starts"], row["ends"]]).T)
            token_edu[n, : len(edus)] = edus
            bands[n] = self.codes(parse, int(edus.max()) + 1)
            gammas[n] = self.edu_gamma(parse, int(edus.max()) + 1)
        if len({band.shape[2] for band in bands.values()}) > 1:
            found = {rows[n]["id"]: band.shape[2] for n, band in bands.items()}
            raise CorpusError(f"{self.parses}: parses with different numbers of relations: {found}; parse them anew")
        most = max((len(band) for band in bands.values()), default=1)
        half = max((band.shape[1] // 2 for band in bands.values()), default=0)
        relations = len(self.parser.relations)
        ldd = torch.zeros(len(rows), most, 2 * half + 1, relations, dtype=torch.uint8)
        gamma = torch.zeros(len(rows), most)
        for n, band in bands.items():
            ldd[n, : len(band)] = resize(band, half)
            gamma[n, : len(band)] = gammas[n]
        return token_edu, ldd, gamma

    def edu_gamma(self, parse: DiscourseParse, size: int) -> Tensor:
        """gamma of the first `size` EDUs of a document, of what the ablation gives in the place of its LDD, [E].

        A random table has no values beyond the band: its gamma is the mean over the pairs that it holds. `permuted`
        gives each EDU the gamma of another one of the same document.
        """
        if self.ablation == "one_best":
            return tree_gamma(parse.tree, parse.size, parse.rows)[:size]
        if self.ablation == "ria":
            return band_gamma(decode(self.codes(parse, parse.size)))[:size]
        if self.ablation == "permuted":
            generator = torch.Generator().manual_seed(document_seed(self.ablation_seed, parse.text_digest))
            return parse.gamma[:size][torch.randperm(size, generator=generator)]
        if self.ablation == "other":
            return self._others.gamma(parse, size)
        return parse.gamma[:size]

    def codes(self, parse: DiscourseParse, size: int) -> Tensor:
        """What the ablation gives in the place of a document's LDD.

        Args:
            parse: the document's own.
            size: EDUs that tokens are in, E.

        Returns:
            The band in one byte a value, uint8 [E, 2b + 1, R], b at most the document's number of EDUs - 1.
        """
        half = min(self.half_width, parse.size - 1)
        if self.ablation == "one_best":
            return encode_ldd(parse.band(half, "one_best"))[:size]
        if self.ablation == "ria":
            sparse = self.random_values == "sparse"
            if self._random is None:
                self._random = RandomTable(self.half_width, len(parse.relations), self.ablation_seed, sparse)
            return self._random.codes(parse.size, half, parse.share() if sparse else 1.0)[:size]
        if self.ablation == "permuted":
            return permute_pairs(parse.code(half)[:size], document_seed(self.ablation_seed, parse.text_digest))
        if self.ablation == "other":
            return self._others.codes(parse, size, half)
        return parse.code(half)[:size]
