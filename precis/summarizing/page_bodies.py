"""The macros of pages.html, which build the bodies of pages; every text in them is escaped."""

from jinja2 import Environment, PackageLoader

from datamodules.text.lines import one_line

_TEMPLATES = Environment(
    loader=PackageLoader("precis.summarizing", "."), autoescape=True, trim_blocks=True, lstrip_blocks=True
)
_TEMPLATES.globals["one_line"] = one_line
MACROS = _TEMPLATES.get_template("pages.html").module
