"""Draw the layers of the package and the imports between them: `python scripts/draw_house.py`."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "pymc_privacy"
PICTURE = ROOT / "docs" / "images" / "house.svg"
WIDTH, ROW, LEFT, RIGHT = 980, 34, 16, 700


def layers() -> list[str]:
    """Return the order of layers, from the test that holds it."""
    tree = ast.parse((ROOT / "tests" / "test_architecture.py").read_text(encoding="utf-8"))
    [order] = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "LAYERS"
    ]
    return list(ast.literal_eval(order))


def files_of(layer: str) -> list[Path]:
    """Return the files of a package, or the one file of a module."""
    folder = PACKAGE / layer
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [PACKAGE / f"{layer}.py"]


def purpose(layer: str) -> str:
    """Return the first line of what a layer says of itself."""
    folder = PACKAGE / layer
    path = folder / "__init__.py" if folder.is_dir() else PACKAGE / f"{layer}.py"
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.splitlines()[0].replace("`", "")


def imports() -> Counter[tuple[str, str]]:
    """Return how many files of one layer import from another."""
    found: Counter[tuple[str, str]] = Counter()
    for layer in layers():
        for path in files_of(layer):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            names = {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module}
            others = {n.split(".")[1] for n in names if n.startswith("pymc_privacy.")}
            found.update((layer, other) for other in others - {layer})
    return found


def drawing() -> str:
    """Return the picture: one line for each layer, one arc for the imports of each from another."""
    order = layers()
    middle = {layer: 20 + ROW * k + ROW / 2 for k, layer in enumerate(order)}
    height = 40 + ROW * len(order)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="system-ui, sans-serif" font-size="13" role="img">',
        "<title>Layers of pymc_privacy, and who imports from whom</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for (layer, other), number in sorted(imports().items()):
        if other in ("errors", "arguments", "_compat"):
            continue  # from nearly everywhere
        start, end = middle[layer], middle[other]
        reach = RIGHT + 12 * (order.index(layer) - order.index(other))
        width = 0.6 + min(number, 20) / 5
        parts.append(
            f'<path d="M {RIGHT} {start} C {reach + 60} {start}, {reach + 60} {end}, '
            f'{RIGHT} {end}" fill="none" stroke="#4a6fa5" stroke-opacity="0.45" '
            f'stroke-width="{width:.1f}"><title>{layer} imports {other}: {number} files'
            "</title></path>"
        )
    for layer in order:
        y = middle[layer]
        number = len(files_of(layer))
        parts += [
            f'<rect x="{LEFT}" y="{y - ROW / 2 + 3}" width="{RIGHT - LEFT}" height="{ROW - 6}" '
            'rx="4" fill="#eef2f7" stroke="#c3cfdd"/>',
            f'<text x="{LEFT + 10}" y="{y + 4.5}" font-weight="600" fill="#1f2d3d">{layer}</text>',
            f'<text x="{LEFT + 130}" y="{y + 4.5}" fill="#33475b">'
            f"{escape(_short(purpose(layer)))}</text>",
            f'<text x="{RIGHT - 10}" y="{y + 4.5}" text-anchor="end" fill="#7a8a9a">'
            f"{number}</text>",
        ]
    return "\n".join([*parts, "</svg>", ""])


def _short(text: str, most: int = 72) -> str:
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(PICTURE.read_text(encoding="utf-8") != drawing())
    PICTURE.write_text(drawing(), encoding="utf-8")
