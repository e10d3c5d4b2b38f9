"""matplotlib's SVG made fit to stand in a page: no style attributes (the page's CSP forbids them), no ids that clash,
colours by CSS variables, so that a plot follows the page from light to dark.
"""

from __future__ import annotations

import io
import re
import warnings
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from markupsafe import Markup

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, FAINT = "#0a0b0c", "#0a0b0d"
SERIES = tuple(f"#0c0d{i:02x}" for i in range(8))
"""Stand-ins: what the page's variables ``--ink``, ``--faint`` and ``--s0`` … ``--s7`` replace."""
STYLE = {
    "svg.fonttype": "none", "svg.hashsalt": "ragtrace", "text.parse_math": False, "axes.unicode_minus": False,
    "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": FAINT, "xtick.color": INK, "ytick.color": INK,
    "axes.titlecolor": INK, "axes.titlesize": 10, "axes.labelsize": 9, "xtick.labelsize": 8, "ytick.labelsize": 8,
    "legend.fontsize": 8, "legend.frameon": False, "figure.facecolor": "none", "axes.facecolor": "none",
    "axes.spines.top": False, "axes.spines.right": False, "grid.color": FAINT, "grid.linewidth": 0.5,
    "axes.grid": True, "axes.axisbelow": True, "axes.titlelocation": "left", "lines.linewidth": 1.6,
    "font.family": ["DejaVu Sans"],
}  # fmt: skip
_VARIABLES = {INK: "var(--ink)", FAINT: "var(--faint)"} | {c: f"var(--s{i})" for i, c in enumerate(SERIES)}
_KEPT = ("fill", "stroke", "opacity", "clip-", "font-size", "text-anchor", "fill-", "stroke-")
_LONG = re.compile(r"-?\d+\.\d{3,}")


def inline(figure: Figure, label: str, number: int) -> Markup:
    """The figure as one ``<svg>`` that a screen reader calls ``label``; ``number`` differs for each in a page."""
    with io.StringIO() as made, warnings.catch_warnings():
        # a letter that the layout's font lacks is drawn by the reader's
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(made, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
        root = ET.fromstring(made.getvalue())  # noqa: S314 (matplotlib's own output, escaped by it)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.endswith(("}metadata", "}style")):
                parent.remove(child)
    used = set(re.findall(r"#(\w+)", " ".join(v for e in root.iter() for k, v in e.attrib.items() if k != "style")))
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        _plain(element, used, f"p{number}-")
    for gone in ("width", "height", "version"):
        root.attrib.pop(gone, None)
    root.attrib |= {"role": "img", "aria-label": label, "class": "plot"}
    return Markup(ET.tostring(root, encoding="unicode"))  # noqa: S704 (serialised by ElementTree)


def _plain(element: ET.Element, used: set[str], prefix: str) -> None:
    attributes = dict(element.attrib)
    element.attrib.clear()
    style = attributes.pop("style", "")
    for name, value in attributes.items():
        name = name.rpartition("}")[2]
        if name == "id":
            if value in used:
                element.set("id", prefix + value)
            continue
        value = re.sub(r"(?<=#)(\w+)", lambda m: prefix + m[1] if m[1] in used else m[1], value)
        element.set(name, _LONG.sub(lambda m: f"{float(m[0]):.2f}", value))
    for part in style.split(";"):
        name, _, value = (p.strip() for p in part.partition(":"))
        if name == "font" and (size := re.search(r"[\d.]+px", value)):
            element.set("font-size", size[0])
        elif name.startswith(_KEPT):
            element.set(name, _VARIABLES.get(value, value))
