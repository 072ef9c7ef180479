"""Hooks of MkDocs: pages from other folders of the repository, and formulas as MathML.

Links in the pages are those of the repository, so that they work there too; here they are translated to the site's.
"""

import posixpath
import re
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
OUTSIDE = ["benchmarks/peers.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "THIRD_PARTY.md"]
OUTSIDE += [f"experiments/results/*.{suffix}" for suffix in ("md", "png", "svg")]
LINK = re.compile(r"(\]\()([^)\s#]+)([^)]*\))")
BLOCK = re.compile(r"^```math\n(.*?)^```$", flags=re.S | re.M)
INLINE = re.compile(r"\$`([^`]+)`\$")
REMOTE_WORKER = "https://unpkg.com/iframe-worker/shim"  # what the plugin `offline` adds to pages
WORKER = "scripts/worker_on_disk.js"


def on_files(files: Files, config) -> Files:
    """Add the pages that stand outside of docs/, under the path that they have in the repository."""
    for pattern in OUTSIDE:
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            files.append(File(name, str(ROOT), config.site_dir, config.use_directory_urls))
    return files


def on_page_markdown(markdown: str, page, config, files: Files) -> str:
    """Translate links of the repository to those of the site, and LaTeX to MathML."""
    page_path = page.file.src_uri
    in_repository = page_path if (ROOT / page_path).is_file() else f"docs/{page_path}"

    def translate(match: re.Match) -> str:
        target = match[2]
        if "://" in target:
            return match[0]
        resolved = posixpath.normpath(posixpath.join(posixpath.dirname(in_repository), target)).removeprefix("docs/")
        return match[1] + posixpath.relpath(resolved, posixpath.dirname(page_path) or ".") + match[3]

    markdown = LINK.sub(translate, markdown)
    markdown = BLOCK.sub(lambda match: convert(match[1].strip(), display="block"), markdown)
    return INLINE.sub(lambda match: convert(match[1]), markdown)


def on_post_page(output: str, page, config) -> str:
    """Replace the one script that a page would load from another server."""
    return output.replace(REMOTE_WORKER, posixpath.relpath(WORKER, posixpath.dirname(page.url) or "."))


def on_post_template(output: str, template_name: str, config) -> str:
    """Replace the same script in the page of unknown addresses, which a server shows at any depth."""
    return output.replace(REMOTE_WORKER, f"/{WORKER}")
