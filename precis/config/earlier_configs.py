"""Former names of classes and arguments in the configs of run folders."""

from typing import Any

from precis.files.nested_values import get_value, map_strings, set_value

# Former class path -> present class path.
MOVED = {"experiments.run_scorer.RunScorer": "precis.training.run_scorer.RunScorer"}
# Class -> former arguments, with the only value that their configs have.
DROPPED: dict[str, dict[str, Any]] = {
    "RSTformer": {"long_input": "truncate"},
    "GraphSum": {"long_input": "windows"},
    "Pegasus": {"long_input": "truncate"},
    "MatchSum": {"long_input": "windows"},
    "DiscourseParser": {"loss_weights": None, "start_from": None},
}


def _into(group: str, names: str, **renamed: str) -> dict[str, str]:
    """Return the dotted names in a group of arguments that were not grouped before, some under another name."""
    names_in_group = {name: name for name in names.split()} | renamed
    return {former: f"{group}.{name}" for former, name in names_in_group.items()}


_SIZES = "checkpoint hidden_size heads inner_size"
_RATES = {"learning_rate": "lr", "encoder_learning_rate": "encoder_lr"}
_ADAMW = _into("optimizer", "schedule weight_decay", warm_up="warmup_steps", **_RATES)
_ENCODER = _into("encoder", "hidden_size heads layers attention_dropout", encoder="checkpoint")
_DOCUMENT_ENCODER = {**_ENCODER, **_into("encoder", "long_input positions interval_segments")}
_TOKEN_ENCODER = {
    **_into("encoder", "layers frozen frozen_layers lora_rank window", encoder="checkpoint"),
    **_into("encoder", "", encoder_dropout="dropout", small_encoder="start_from"),
    **_into("optimizer", "weight_decay", **_RATES),
}
_INTER = {"inter_layers": "layers", "inter_heads": "heads", "inter_size": "inner_size"}
_COPYING = {
    **_into("embedding", "", embedding_size="size", embedding_std="std"),
    **_into("optimizer", "", learning_rate="lr"),
}
# Class -> former name -> name in a group.
GROUPED: dict[str, dict[str, str]] = {
    "RSTformer": {
        **_into("encoder", f"{_SIZES} layers window positions target_positions init_std", frozen_encoder="frozen"),
        **_into("encoder", "lora_rank lora_alpha attention checkpoint_activations compile_layers"),
        **_into("injection", "ablation own_edu_neutral relations relation_frequency learn_weights"),
        **_into("injection", "", injection="formula"),
        **_into("optimizer", "schedule discourse_rate", learning_rate="lr"),
    },
    "GraphSum": {
        **_into("encoder", f"{_SIZES} pretrained_embeddings token_layers paragraph_layers norm", encoder="kind"),
        **_into("encoder", "paragraph_positions multi_head_pooling", freeze_checkpoint="frozen"),
        **_into("encoder", "", encoder_window="window"),
        **_into("graph_bias", "sigma learn_sigma", graph_encoder="in_encoder", graph_decoder="in_decoder"),
        **_into("optimizer", "warmup_steps encoder_warmup_steps", learning_rate="lr"),
        **_into("optimizer", "", encoder_learning_rate="encoder_lr", sigma_learning_rate="sigma_lr"),
    },
    "Pegasus": {**_into("encoder", f"{_SIZES} layers"), **_into("optimizer", "", learning_rate="lr")},
    "BertSum": {
        **_DOCUMENT_ENCODER,
        **_into("encoder", "", frozen_encoder="frozen"),
        **_into("inter_sentence", "activation first_norm", **_INTER),
        **_ADAMW,
    },
    "MatchSum": {**_ENCODER, **_ADAMW},
    "BertSumAbs": {
        **_DOCUMENT_ENCODER,
        **_ADAMW,
        **_into("optimizer", "", encoder_warm_up="encoder_warmup_steps"),
        "decoder_size": "decoder_inner_size",
    },
    "PointerGenerator": _COPYING,
    "CommunicatingAgents": {**_COPYING, **_into("embedding", "word_vectors")},
    "DiscourseParser": _TOKEN_ENCODER,
    "EduSegmenter": _TOKEN_ENCODER,
}
# Callback -> former name of an argument -> present name, None for one that is gone.
CALLBACKS: dict[str, dict[str, str | None]] = {"SelfCritical": {"baseline": "advantage", "collapse": None}}


def upgrade(config: Any) -> Any:
    """Return the content of a YAML file with the present names of classes and arguments."""
    if not isinstance(config, dict):
        return config
    config = map_strings(config, lambda text: MOVED.get(text, text))
    _upgrade_callbacks(get_value(config, "trainer.callbacks"))
    model = config.get("model")
    arguments = model.get("init_args") if isinstance(model, dict) else None
    if not isinstance(arguments, dict):
        return config
    class_name = str(model.get("class_path")).rpartition(".")[2]  # broken configs may have any type here
    for name, value in DROPPED.get(class_name, {}).items():
        if arguments.get(name, value) == value:
            arguments.pop(name, None)
    names = GROUPED.get(class_name, {})
    # a group may have the name of a former argument
    flat = {former: arguments.pop(former) for former in names if not isinstance(arguments.get(former, {}), dict)}
    for former, value in flat.items():
        if get_value(arguments, names[former]) is None:
            set_value(arguments, names[former], value)
    return config


def _upgrade_callbacks(callbacks: Any) -> None:
    """Rename former arguments of callbacks in place."""
    for callback in callbacks if isinstance(callbacks, list) else []:
        arguments = callback.get("init_args") if isinstance(callback, dict) else None
        if not isinstance(arguments, dict):
            continue
        for former, name in CALLBACKS.get(str(callback.get("class_path")).rpartition(".")[2], {}).items():
            value = arguments.pop(former, None)
            if value is not None and name:
                arguments.setdefault(name, value)
