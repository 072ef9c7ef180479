"""Data of RSTformer: subwords, the EDU of each, and the discourse between EDUs that a window can reach."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning.utilities import rank_zero_info
from torch import Tensor

from datamodules.batch import TargetBatch, on_host, pad, target_fields
from datamodules.corpora.corpus import Corpus, as_document
from datamodules.discourse import ablations
from datamodules.discourse.ablations import Ablation, OtherDiscourse, ParserDiscourse
from datamodules.discourse.cache import ParseCache, ShardWriter
from datamodules.discourse.distributions import Rows, resize
from datamodules.discourse.parses import DiscourseParse, ParseRequest, align, reach_by_document
from datamodules.documents import Document, UserError
from datamodules.loading import at_least
from datamodules.parsing import NeedsParser, Parser, key_of, parse_missing, without_weights
from datamodules.text.language import ENGLISH_PARSER, warn_if_not_english
from datamodules.text.lines import counted
from datamodules.text.subword_tokenizer import SubwordTokenizer
from datamodules.tokenizer_data import TokenizerData
from datamodules.truncation import TRUNCATION, count_source, sentences_read, truncate_target

_ABLATIONS = {"one_best": ablations.OneBestDiscourse, "ria": ablations.RandomDiscourse}
_ABLATIONS |= {"permuted": ablations.PermutedDiscourse}
_BAND = 128  # half-width of the LDD of a parser named by a string: the default of `precis parse --band`
_OTHERS = 64  # number of training documents from which the ablation `other` takes discourse
_OTHERS_FOLDER = "other_documents"  # folder of their parses, next to the tokenizer of a run


@dataclass
class RSTformerBatch(TargetBatch):
    """B documents of up to S tokens and E EDUs, with discourse: p(EDU i is the nucleus of EDU j under relation l)."""

    source: Tensor  # <s>, the document and </s>, [B, S]
    source_mask: Tensor  # 1 at tokens, 0 at padding, [B, S]
    # 1 at the first token, which has global attention, [B, S], on the CPU, where the model looks for the global tokens
    global_mask: Tensor = on_host()
    token_edu: Tensor = on_host()  # EDU of each token, -1 for special tokens and text in no EDU, [B, S], on the CPU
    ldd: Tensor | None  # p in [i, b + j - i, l] as bytes (see `decode`), [B, E, 2b + 1, R]; None without discourse
    gamma: Tensor | None  # importance of each EDU as a nucleus, float32 [B, E]; None without discourse


class RSTformerData(NeedsParser, TokenizerData):
    """Documents truncated to `max_source` subwords with their discourse, and first references as targets.

    The discourse is an LDD (labeled discourse distribution), p(a, b, l): the probability that EDU (elementary discourse
    unit) a is the nucleus of EDU b under relation l. Without a folder `parses`, documents are parsed when the data is
    prepared. The loss reads the first reference; validation and test score against all of them.

    Args:
        vocab_size: size of a tokenizer that is trained on the corpus, at least 260 (256 bytes and four special
            symbols); with `checkpoint` an upper limit for the size of its tokenizer.
        checkpoint: name or folder of a pretrained LED whose tokenizer is used.
        parser: parser, or its name as in `precis parse --parser`; not needed with `no_discourse`.
        rows: EDUs a with probability in the LDD of a parser given by name. `side`: all on the nucleus side of the node
            that joins a and b; `nucleus`: of these, only EDUs that are also a nucleus of their own parent.
        parses: folder that `precis parse` filled for training and validation; by default `parses` in the cache.
        ablation: what the model reads instead of the LDD; the model needs the same one. `one_best`: the LDD of the most
            probable tree; `ria` (random identical attention): one random LDD for all documents; `permuted`: the values
            of the LDD at other pairs of EDUs; `other`: the LDD of one of up to 64 training documents, whose parses are
            stored in the folder of the run. `no_discourse` needs no parser. The model alone applies `no_labels` and
            `wac` (without attention calculation: p replaces attention scores).
        ablation_seed: seed of `ria`, `permuted` and `other`.
        max_source: maximum number of tokens of a document, <s> and </s> included; at most the positions of the model.
        max_target: maximum number of tokens of a summary in the loss, </s> included.
        half_width: largest distance, in EDUs, of EDUs a and b in the LDD of a batch; at most that of the parser.
        shared: arguments of `SummarizationData`.
    """

    batch_type = RSTformerBatch
    tokenizer_type = SubwordTokenizer
    text_kind = "subwords"

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
        max_source: int = 1024,
        max_target: int = 128,
        half_width: int = 64,
        batch_size: int = 8,
        **shared: Any,
    ) -> None:
        super().__init__(corpus, vocab_size, checkpoint, batch_size=batch_size, **shared)
        at_least(3, max_source=max_source)  # a token besides special symbols
        at_least(2, max_target=max_target)
        at_least(1, half_width=half_width)  # neighboring EDUs
        if parser is None and ablation != "no_discourse":
            raise ValueError("data.parser is missing: name one, or set ablation to no_discourse")
        self.rows = rows
        self.ablation = ablation
        self._parser = None if ablation == "no_discourse" else parser
        # a parser named by a string has no `band` (half-width of its LDD) yet: it is loaded with one that suffices
        if half_width > getattr(self._parser, "band", half_width):
            raise ValueError(f"data.half_width {half_width}: the parser gives {self.parser.band} EDUs to each side")
        self.ablation_seed = ablation_seed
        self.max_source = max_source
        self.max_target = max_target
        self.half_width = half_width
        self.parses = Path(parses or self.cache_dir / "parses")
        self.parses_given = parses is not None
        self._discourse_source: ParserDiscourse | None = None  # turns parses into discourse; made by `read_discourse`

    @property
    def parser(self) -> Parser | None:
        """Parser, loaded on first use if named by a string; None without discourse.

        Raises:
            UserError: if there is no parser of that name.
        """
        if isinstance(self._parser, str):
            band = max(_BAND, self.half_width)  # the default of `precis parse` if it suffices, to reuse its parses
            self._parser = self.parser_named(self._parser, self.rows, band)
        return self._parser

    @cached_property
    def cache(self) -> ParseCache:
        """Cache of parses."""
        return ParseCache(self.parses)

    def feature_settings(self) -> dict[str, Any]:
        parser = None if self.parser is None else [self.parser.fingerprint, self.parser.rows, self.parser.band]
        return {"max_source": self.max_source, "max_target": self.max_target, "parser": parser}

    def encode(self, document: Document) -> dict[str, Any]:
        """Return the features of a document: tokens with their offsets, the target, and the cache key of its parse."""
        all_ids, all_offsets = self.tokenizer(document.text)  # offsets are (start, end) in characters
        ids, offsets = all_ids[: self.max_source - 2], all_offsets[: self.max_source - 2]  # without <s> and </s>
        reference, _ = self.tokenizer(" ".join(document.reference))
        target, target_counts = truncate_target(reference, self.max_target, self.tokenizer.stop)
        counts = count_source(document, len(ids), len(all_ids), sentences_read(document, all_offsets, len(ids)))
        request = ParseRequest.of(document)  # the whole document, which is parsed without truncation
        return {
            "source": [self.tokenizer.start, *ids, self.tokenizer.stop],
            "starts": [0, *(start for start, _ in offsets), 0],  # <s> and </s> cover no text
            "ends": [0, *(end for _, end in offsets), 0],
            "target": target,
            # cache key of the parse, empty without a parser or text
            "parse": "" if self.parser is None or request.empty else key_of(request, self.parser),
            "length": len(ids) + 2,  # with <s> and </s>
            TRUNCATION: counts | target_counts,  # [read, total] of each unit
        }

    def _for_workers(self) -> "RSTformerData":
        data = super()._for_workers()
        data._parser = None if self.parser is None else without_weights(self.parser)
        return data

    def on_new_features(self, split: str) -> None:
        """Parse documents missing in the cache, warn about another language, read parses for the ablation `other`."""
        if self.parser is None:  # with the ablation `no_discourse`
            return
        if getattr(self.parser, "is_english", False):  # optional attribute of parsers
            warn_if_not_english(ENGLISH_PARSER, language=self.language.code)
        keys = self.features(split)["parse"][:]  # keys of parses
        documents = self.documents(split)  # in the same order
        missing = set(self.cache.missing([key for key in keys if key]))  # documents without text have no key
        if missing:
            unparsed = [as_document(documents[index]) for index, key in enumerate(keys) if key in missing]
            self._announce(split, unparsed)  # raises if they should be in the user's folder
            parse_missing(unparsed, self.cache, self.parser)
        if self.ablation == "other":
            self.read_discourse()  # now, so that each loader process gets the parses with its copy of this object

    def read_discourse(self) -> ParserDiscourse:
        """Return the object that turns parses into LDD and gamma (importance of EDUs) by the ablation, made once."""
        if self._discourse_source is None and self.ablation == "other":
            self._discourse_source = OtherDiscourse(self.half_width, self.ablation_seed, self._other_parses())
        elif self._discourse_source is None:
            # other ablations, such as `wac` and `no_labels`, change the model instead of its input
            discourse_type = _ABLATIONS.get(self.ablation, ParserDiscourse)
            self._discourse_source = discourse_type(self.half_width, self.ablation_seed)
        return self._discourse_source

    def _other_parses(self) -> list[DiscourseParse]:
        """Return parses for the ablation `other`: in training of up to 64 documents, later those stored in the run."""
        stored = None if self.tokenizer_dir is None else Path(self.tokenizer_dir) / _OTHERS_FOLDER
        training = self.trainer is not None and self.trainer.state.fn == "fit"  # chooses from the documents of this run
        if stored is not None and stored.is_dir() and not training:
            cache = ParseCache(stored)
            return [cache.get(key) for key in cache]
        sizes = {key: self.cache.size(key) for key in set(self.features("train")["parse"][:]) if key}  # in EDUs
        return [self.cache.get(key) for key in ablations.evenly_spread(sizes, _OTHERS)]  # documents of all lengths

    def loaded_splits(self) -> list[str]:
        """Return the splits with loaded features."""
        return list(self._features)

    def widest_reach(self, split: str, window: int) -> tuple[int, str]:
        """Return the largest `reach` over `window` tokens, and its document id, if EDUs are beyond `half_width`."""
        widest, widest_id = 0, ""  # returned if no document has EDUs more than `half_width` apart
        features = self.features(split)
        keys = features["parse"][:]
        long = [index for index, key in enumerate(keys) if key and self.cache.size(key) > self.half_width + 1]
        for row in features.select(long).with_format("torch", columns=["starts", "ends"], output_all_columns=True):
            parse = self.cache.get(row["parse"], row["id"])
            edus = align(torch.stack([row["starts"], row["ends"]], 1), parse.edus)  # EDU of each token, by offsets, [S]
            if (distance := int(reach_by_document(edus.unsqueeze(0), window))) > widest:
                widest, widest_id = distance, row["id"]
        return widest, widest_id

    def save_tokenizer(self, folder: Path) -> None:
        """Save the tokenizer and, with the ablation `other`, the parses from which it takes discourse."""
        super().save_tokenizer(folder)
        if not isinstance(self._discourse_source, OtherDiscourse):
            return
        parses = {parse.text_digest: parse for parse in self._discourse_source.parses}  # keys only need to be unique
        cache = ParseCache(Path(folder) / _OTHERS_FOLDER)
        missing = cache.missing(parses)  # the folder of a resumed run has them
        with ShardWriter(cache) as writer:
            for key in missing:
                writer.add(key, parses[key])

    def _announce(self, split: str, missing: list[Document]) -> None:
        """Print that documents lack a parse; UserError for `train` and `val` if the user named the folder of parses."""
        examples = ", ".join(document.id for document in missing[:3]) + (", ..." if len(missing) > 3 else "")
        documents = f"{counted(len(missing), 'document')} of {split} ({examples})"
        options = f"--rows {self.parser.rows} --band {self.parser.band} --language {self.language.code}"
        lacks = f"{self.parses}: no parse of {documents} by this parser with {options}"
        if self.parses_given and split in ("train", "val"):
            raise UserError(
                f"{lacks}; run `precis parse` with these options, this --parser and this folder as --out, "
                "or leave data.parses out to have them parsed now"
            )
        rank_zero_info(f"{lacks}; they are parsed now")

    def collate(self, rows: list[dict[str, Any]]) -> RSTformerBatch:
        source = pad([row["source"] for row in rows], self.tokenizer.pad)  # [B, S]
        global_mask = torch.zeros_like(source)
        global_mask[:, 0] = 1  # <s> attends to all tokens and all attend to it, as in LED
        token_edu, ldd, gamma = self.discourse(rows, source.shape[1])  # see `RSTformerBatch`
        return RSTformerBatch(
            ids=[row["id"] for row in rows],
            references=[row["references"] for row in rows],
            source=source,
            source_mask=pad([[1] * len(row["source"]) for row in rows]),
            global_mask=global_mask,
            token_edu=token_edu,
            ldd=ldd,
            gamma=gamma,
            **target_fields([row["target"] for row in rows], self.tokenizer.pad),
        )

    def discourse(self, rows: list[dict[str, Any]], width: int) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return `token_edu` [B, S], `ldd` [B, E, 2b + 1, R], `gamma` [B, E] of an `RSTformerBatch`; `width` is S.

        Raises:
            MissingParse: if a document was not parsed.
            UserError: if a parse is of another text, or has different relations.
        """
        token_edu = torch.full((len(rows), width), -1)
        if self.parser is None:
            return token_edu, None, None
        discourse = self.read_discourse()  # gives LDD and gamma by the ablation
        bands: dict[int, Tensor] = {}  # index in the batch -> LDD as in `RSTformerBatch`, [EDUs, 2b + 1, R]
        gammas: dict[int, Tensor] = {}  # index in the batch -> importance as nuclei, [EDUs]
        for index, row in enumerate(rows):
            if not row["parse"]:  # a document without text
                continue
            parse = self.cache.get(row["parse"], row["id"])  # (cache key, id of the document)
            edus = align(torch.tensor([row["starts"], row["ends"]]).T, parse.edus)  # EDU of each token or -1, [tokens]
            size = int(edus.max()) + 1  # number of EDUs in the truncated text; 0 if it ends before the first one
            if size:
                token_edu[index, : len(edus)] = edus
                bands[index] = discourse.codes(parse, size)  # the LDD, one byte per probability
                gammas[index] = discourse.gamma(parse, size)
        if len({band.shape[2] for band in bands.values()}) > 1:
            relations_of = {rows[index]["id"]: band.shape[2] for index, band in bands.items()}
            problem = f"parses with different numbers of relations: {relations_of}"
            raise UserError(f"{self.parses}: {problem}; parse them again")
        max_edus = max((len(band) for band in bands.values()), default=1)  # without any parse, one EDU of padding
        half_width = max((band.shape[1] // 2 for band in bands.values()), default=0)  # b; small if all texts are short
        relations = len(self.parser.relations)  # R
        ldd = torch.zeros(len(rows), max_edus, 2 * half_width + 1, relations, dtype=torch.uint8)
        gamma = torch.zeros(len(rows), max_edus)
        for index, band in bands.items():
            ldd[index, : len(band)] = resize(band, half_width)  # zeros beyond the band of a short text
            gamma[index, : len(band)] = gammas[index]
        return token_edu, ldd, gamma
