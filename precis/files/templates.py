"""Templates of Jinja, which lie beside the modules that fill them."""

from jinja2 import Environment, PackageLoader, Template, select_autoescape

from datamodules.text.lines import one_line


def template(package: str, name: str) -> Template:
    """Return a template in the folder of a package; in HTML and SVG, all texts are escaped."""
    loader, escaped = PackageLoader(package, "."), select_autoescape(("html", "svg"))
    environment = Environment(loader=loader, autoescape=escaped, trim_blocks=True, lstrip_blocks=True)
    environment.globals["one_line"] = one_line  # a function that templates call
    return environment.get_template(name)
