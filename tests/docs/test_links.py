"""Every relative link in the Markdown files leads to a file, and to a heading that is in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page
    for top in ("*.md", "docs/**/*.md", "tests/**/*.md", "patches/*.md", "benchmarks/*.md")
    for page in ROOT.glob(top)
)
CODE = re.compile(r"^(```|~~~).*?^\1|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.MULTILINE)


def links(text: str) -> list[str]:
    """Targets of the links in Markdown, except inside code."""
    return LINK.findall(CODE.sub("", text))


def anchors(text: str) -> set[str]:
    """The names that GitHub gives to the headings."""
    names: set[str] = set()
    same: dict[str, int] = {}  # how often a name came before
    for title in HEADING.findall(re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
        name = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        same[name] = same.get(name, -1) + 1
        names.add(f"{name}-{same[name]}" if same[name] else name)
    return names


def mistake(page: Path, target: str) -> str | None:
    """What is wrong with a link of ``page``."""
    if re.match(r"[a-z][a-z0-9+.-]*:", target):
        return None  # another site
    place, _, anchor = target.partition("#")
    path = (page.parent / place).resolve() if place else page
    if not path.exists():
        return "there is no such file"
    if anchor and anchor not in anchors(path.read_text(encoding="utf-8")):
        return "that page has no such heading"
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    dead = {target: mistake(page, target) for target in links(page.read_text(encoding="utf-8"))}
    assert {target: why for target, why in dead.items() if why} == {}


def test_dead_links_are_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Two words, `a_b`\n## Two words, a_b\n[x](other.md) `[y](no.md)` [z](#two)\n")
    assert links(page.read_text()) == ["other.md", "#two"]
    assert anchors(page.read_text()) == {"two-words-a_b", "two-words-a_b-1"}
    assert mistake(page, "other.md") and mistake(page, "#two")
    assert not mistake(page, "#two-words-a_b") and not mistake(page, "https://no.where/x")


def test_the_readme_is_among_the_pages() -> None:
    assert ROOT / "README.md" in PAGES and len(PAGES) > 8
