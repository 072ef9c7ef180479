"""Text of articles in HTML pages, by `trafilatura` (the optional package `html`)."""

from pathlib import Path

from datamodules.documents import UserError

SUFFIXES = (".html", ".htm")


def is_html(path: Path) -> bool:
    """Return whether a file is an HTML page, by its suffix."""
    return path.suffix.lower() in SUFFIXES


def article_text(path: Path) -> str:
    """Return the text of the article in a page, without navigation and comments, its paragraphs apart by blank lines.

    Raises:
        UserError: if `trafilatura` is not installed, or the page has no article.
    """
    try:
        from trafilatura import extract
    except ImportError:
        problem = "reading HTML needs trafilatura, which is not installed"
        raise UserError(f"{path}: {problem}: pip install 'precis-suite[html]'") from None
    text = extract(path.read_bytes(), include_comments=False, include_tables=False)
    if not text:
        raise UserError(f"{path}: no article was found in this page; save its text in a .txt file")
    return "\n\n".join(line for line in text.split("\n") if line.strip())
