"""Word segmenters for scripts without spaces between words: optional packages, named after the code of a language."""

from collections.abc import Callable
from functools import cache, partial

from datamodules.documents import UserError

Segmenter = Callable[[str], list[str]]


def _jieba() -> Segmenter:
    import jieba

    tokenizer = jieba.Tokenizer()
    # `initialize` would write and read a cache in the folder of temporary files, which others may write to.
    tokenizer.FREQ, tokenizer.total = tokenizer.gen_pfdict(tokenizer.get_dict_file())
    tokenizer.initialized = True
    return tokenizer.lcut


def _fugashi() -> Segmenter:
    import fugashi
    import unidic_lite

    tagger = fugashi.Tagger(f'-d "{unidic_lite.DICDIR}"')
    return lambda text: [word.surface for word in tagger(text)]


def _pythainlp() -> Segmenter:
    from pythainlp.tokenize import word_tokenize

    return partial(word_tokenize, engine="newmm")


SEGMENTERS = {"zh:jieba": _jieba, "ja:fugashi": _fugashi, "th:pythainlp": _pythainlp}


@cache
def load_segmenter(code: str) -> Segmenter:
    """Return a function of `SEGMENTERS` that divides characters without spaces into words.

    Raises:
        UserError: if there is no such segmenter, or its package is not installed.
    """
    if code not in SEGMENTERS:
        raise UserError(f"language {code!r}: the segmenters of words are {', '.join(SEGMENTERS)}; name one of them")
    package = code.partition(":")[2]
    try:
        return SEGMENTERS[code]()
    except ImportError as error:
        install = f"pip install 'precis-suite[{package}]'"
        raise UserError(f"language {code} needs the package {package} ({error}); run {install}") from error
