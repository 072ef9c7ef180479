"""Removal of marks that published datasets leave in their texts, by named rules."""

import re
from collections import Counter
from typing import Any

# name of a rule -> its marks, and what replaces them
RULES = {
    "byte order marks": (re.compile("\ufeff"), ""),
    "sentence tags <S>": (re.compile(r"</?S> ?"), ""),  # PubMed and arXiv of Cohan et al. (2018)
    "marks NEWLINE_CHAR": (re.compile(r" ?\bNEWLINE_CHAR\b ?"), "\n"),  # Multi-News
    # CNN/DailyMail: "(CNN)" or "LONDON, England (CNN) --", but no convolutional neural network
    "datelines (CNN)": (re.compile(r"\A(?:[A-Z]{2}[^\n()]{0,60} (?=\(CNN\) --))?\(CNN\)(?: ?--)? ?"), ""),
}


def clean(value: Any, counts: Counter[str]) -> Any:
    """Return a text, or nested lists of texts, without the marks of `RULES`; add their numbers to `counts`."""
    if isinstance(value, list):
        return [clean(item, counts) for item in value]
    if isinstance(value, str):
        for name, (marks, replacement) in RULES.items():
            value, number = marks.subn(replacement, value)
            counts[name] += number
    return value
