"""One choice, `long_input`, of how a model reads documents beyond the input limit of its pretrained encoder.

`windows` encodes overlapping parts (or parts without overlap, where a model joins their vectors); `extend` adds
positions to the encoder, copies of the last one; `truncate` reads the beginning, up to `data.max_source` tokens.
"""

from typing import Any, Literal

from datamodules.documents import UserError

LongInput = Literal["windows", "extend", "truncate"]


def check_truncation(data: Any, limit: int | None, with_choice: bool = False) -> None:
    """Check that a DataModule with `max_source` truncates documents to what an encoder reads at once.

    A limit of None is no limit; `with_choice` tells that the model has the argument `long_input`.

    Raises:
        UserError: if it does not.
    """
    if limit is None or not hasattr(data, "max_source"):
        return
    if data.max_source is None or data.max_source > limit:
        value = "null" if data.max_source is None else data.max_source
        raise UserError(
            f"the encoder reads {limit} tokens, and data.max_source is {value}: set data.max_source to {limit} or less"
            f"{', or choose another model.encoder.long_input' if with_choice else ''}"
        )
