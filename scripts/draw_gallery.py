"""Draw a small picture of every notebook: `python scripts/draw_gallery.py`.

Each is that notebook's last figure. They are shown by `docs/notebooks.md`. Needs Pillow, which
matplotlib brings along.
"""

from __future__ import annotations

import base64
import json
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
PICTURES = ROOT / "docs" / "images" / "gallery"
SIZE, COLOURS = (440, 240), 48


def figures(notebook: dict[str, Any]) -> list[Image.Image]:
    """Return the pictures that are stored in a notebook, in their order."""
    outputs = (output for cell in notebook["cells"] for output in cell.get("outputs", ()))
    encoded = (output.get("data", {}).get("image/png") for output in outputs)
    return [Image.open(BytesIO(base64.b64decode(text))).convert("RGB") for text in encoded if text]


def thumbnail(figure: Image.Image) -> Image.Image:
    """Return a picture of the size of all others, of few colours, on white."""
    small = figure.copy()
    small.thumbnail(SIZE, Image.Resampling.LANCZOS)
    framed = Image.new("RGB", SIZE, "white")
    framed.paste(
        small, tuple((whole - own) // 2 for whole, own in zip(SIZE, small.size, strict=True))
    )
    return framed.quantize(COLOURS)


def main() -> None:
    """Draw all of them, and remove those of notebooks that are gone."""
    PICTURES.mkdir(exist_ok=True)
    drawn = set()
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        *_, last = figures(json.loads(path.read_text(encoding="utf-8")))
        picture = PICTURES / f"{path.stem}.png"
        thumbnail(last).save(picture, optimize=True)
        drawn.add(picture)
        print(f"{picture.relative_to(ROOT)}: {picture.stat().st_size / 1000:.0f} kB")
    for stray in set(PICTURES.glob("*.png")) - drawn:
        stray.unlink()


if __name__ == "__main__":
    main()
