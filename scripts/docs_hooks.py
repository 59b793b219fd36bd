"""What ``mkdocs.yml`` needs beside docs/: the pages at the root, the API's pages, and their links.

README.md is the first page; CHANGELOG.md, CONTRIBUTING.md and the notebooks stand beside the pages
of docs/. All are read where they are. Links that hold in the repository hold in the site: those to
source files lead to ``extra.source`` (LKF_SOURCE_URL), or are left as their text without one.
"""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
AT_ROOT = {"README.md": "index.md", "CHANGELOG.md": "CHANGELOG.md"}
AT_ROOT |= {"CONTRIBUTING.md": "CONTRIBUTING.md"}
API = {
    "runs": ("Runs and samples", ["lkf_plugin.runs.load", "lkf_plugin.decode.sample"]),
    "decode": (
        "Decoding",
        ["lkf_plugin.decode.policy", "lkf_plugin.decode.engine", "lkf_plugin.decode.options",
         "lkf_plugin.decode.registry", "lkf_plugin.decode.selectors", "lkf_plugin.decode.scores"],
    ),
    "objective": (
        "Objectives",
        ["lkf_plugin.objective.objective", "lkf_plugin.objective.mixture",
         "lkf_plugin.objective.likelihood", "lkf_plugin.kernel", "lkf_plugin.subs"],
    ),
    "latents": ("Latents", ["lkf_plugin.latents.structure", "lkf_plugin.latents.sequence",
                            "lkf_plugin.latents.tree", "lkf_plugin.latents.chain"]),
    "likelihood": ("Likelihood", ["lkf_plugin.likelihood.few_step", "lkf_plugin.likelihood.replay",
                                  "lkf_plugin.evaluate.likelihood"]),
    "methods": ("Methods", ["lkf_plugin.methods.method", "lkf_plugin.methods.lkf",
                            "lkf_plugin.methods.taught"]),
    "hub": ("Hub", ["lkf_plugin.hub.export", "lkf_plugin.hub.bring_back",
                    "lkf_plugin.exchange.convert"]),
    "harness": ("Harness", ["lkf_plugin.harness.pieces", "lkf_plugin.harness.scoring"]),
}  # fmt: skip
CODE = re.compile(r"^(```|~~~).*?^\1|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")


def page_of_notebook(path: Path) -> str:
    """A notebook's cells as Markdown."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    texts = ["".join(cell["source"]) for cell in cells]
    return "\n\n".join(
        text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```"
        for cell, text in zip(cells, texts, strict=True)
    )


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that are not in docs/."""
    for name, place in AT_ROOT.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / name)))
    for path in sorted((ROOT / "docs").glob("*.ipynb")):
        place = f"{path.stem}.md"
        files.append(File.generated(config, place, content=page_of_notebook(path)))
    for name, (title, modules) in API.items():
        text = f"# {title}\n\n" + "\n".join(f"::: {module}\n" for module in modules)
        files.append(File.generated(config, f"api/{name}.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links of the repository as links of the site."""
    if page.file.src_uri.startswith("api/"):
        return markdown
    at_root = {place: name for name, place in AT_ROOT.items()}
    place = at_root.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    known = {file.src_uri for file in files}
    return rewritten(markdown, place, known, config["extra"].get("source") or "")


def rewritten(markdown: str, place: str, known: set[str], source: str) -> str:
    """The page with links that hold in the site.

    Args:
        markdown: of the page.
        place: of its file, from the repository's root.
        known: pages and files of the site, from its root.
        source: address of the repository's files; empty for none.
    """
    here = AT_ROOT.get(place, place.removeprefix("docs/"))

    def link(match: re.Match[str]) -> str:
        target = match["target"]
        if re.match(r"[a-z][a-z0-9+.-]*:", target) or target.startswith("#"):
            return match[0]
        path, _, anchor = target.partition("#")
        inside = posixpath.normpath(posixpath.join(posixpath.dirname(place), path))
        site = AT_ROOT.get(inside, inside.removeprefix("docs/"))
        if site in known and (inside in AT_ROOT or inside.startswith("docs/")):
            shown = posixpath.relpath(site, posixpath.dirname(here) or ".")
        elif source:
            shown = f"{source.rstrip('/')}/{inside}"
        else:
            return f"`{inside}`" if match["text"] == inside else match["text"]
        return f"{match['image']}[{match['text']}]({shown}{'#' if anchor else ''}{anchor})"

    parts, end = [], 0
    for code in CODE.finditer(markdown):
        parts += [LINK.sub(link, markdown[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, LINK.sub(link, markdown[end:])])
