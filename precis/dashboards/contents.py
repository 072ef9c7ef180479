"""Contents of dashboards by logged keys. Plain data, against which offline runs are checked."""

from dataclasses import dataclass

ROUGE = ("rouge1", "rouge2", "rougeL", "rougeLsum")
TESTED = (*(f"test/{name}" for name in ROUGE), "test/length", "test/repeated_trigrams")
TEXTS = ("previews", "predictions")  # tables of summaries: after validation, and of the test
SETTINGS = ("seed_everything", "environment.git_commit", "signatures.rouge1", "data.class_path")
TRAINING = ("train/grad_norm", "throughput/documents_per_second", "throughput/steps_per_second")


@dataclass(frozen=True)
class Dashboard:
    """Contents of the dashboard of a paper: keys of logged values for each section."""

    model: str  # class of the model, which is a tag of its runs
    title: str
    losses: tuple[str, ...]
    scores: tuple[str, ...] = tuple(f"val/{name}" for name in ROUGE)  # during training
    tested: tuple[str, ...] = TESTED
    heat_maps: tuple[str, ...] = ()
    tables: tuple[str, ...] = TEXTS
    more: tuple[str, ...] = ()  # what is specific to the paper

    def history(self) -> tuple[str, ...]:
        """Return the keys of the logged values of all sections."""
        return (*self.losses, *self.scores, *self.more, *TRAINING, *self.tested, *self.heat_maps, *self.tables)


def losses(*terms: str) -> tuple[str, ...]:
    """Return the keys of the loss and its terms, in training and validation."""
    return tuple(f"{stage}/{term}" for stage in ("train", "val") for term in ("loss", *terms))


PAPERS = (
    Dashboard(
        "PointerGenerator",
        "Pointer-generator with coverage (See et al. 2017)",
        losses("nll", "coverage"),
        heat_maps=("attention/0", "attention/1"),
        more=("train/p_gen", "val/p_gen", "val/length", "val/repeated_trigrams"),
    ),
    Dashboard(
        "CommunicatingAgents",
        "Deep communicating agents (Celikyilmaz et al. 2018)",
        losses("nll"),
        more=("val/length", "val/repeated_trigrams"),
    ),
    Dashboard("BertSum", "BertSum (Liu and Lapata 2019)", losses("extraction"), more=("val/length",)),
    Dashboard("BertSumAbs", "BertSumAbs (Liu and Lapata 2019)", losses("nll"), more=("val/length",)),
    Dashboard("MatchSum", "MatchSum (Zhong et al. 2020)", ("train/loss", "val/loss"), more=("val/length",)),
    Dashboard("Pegasus", "PEGASUS (Zhang et al. 2020)", losses("nll"), more=("val/length",)),
    Dashboard("PretrainedSummarizer", "Any pretrained encoder-decoder", losses("nll"), more=("val/length",)),
    Dashboard("GraphSum", "GraphSum (Li et al. 2020)", losses("nll"), more=("val/length", "val/repeated_trigrams")),
    Dashboard("RSTformer", "RSTformer (Pu et al. 2023)", losses("nll"), more=("val/length", "val/repeated_trigrams")),
    Dashboard(
        "DiscourseParser",
        "Discourse parser",
        ("train/loss", "val/loss", "train/tree", "train/classes"),
        scores=tuple(f"val/original_parseval/{part}" for part in "SNRF"),
        tested=tuple(f"test/original_parseval/{part}" for part in "SNRF"),
        tables=(),
    ),
)

# The report on RSTformer compares the values of a key of the config, averaged over seeds.
ABLATED = "RSTformer"
ABLATION_TITLE = "RSTformer: is it the discourse? WAC and RIA"
ABLATION_KEY = "model.init_args.injection.ablation"
ABLATIONS = {
    "none": "the whole model",
    "wac": "without attention calculation: the discourse distribution in place of the scores",
    "ria": "random identical attention: random numbers in place of the discourse distribution",
    "permuted": "the document's own distribution with its values at other pairs of EDUs",
    "other": "another document's distribution",
    "no_labels": "without relation labels",
    "one_best": "the best tree in place of the distribution",
    "no_discourse": "the model without discourse",
}
