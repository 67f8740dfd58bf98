"""Colors of values, and what they mean."""

import html

import numpy as np

COLORS = np.array([(68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37)])
"""From the least value to the greatest: five colors of viridis."""

BANDS = 24
"""Colors of a surface: each triangle has that of its mean value."""


def colors_of(shades: np.ndarray) -> np.ndarray:
    """Return colors (n, 3) of shades (n,) from 0 to 1."""
    steps = np.linspace(0.0, 1.0, len(COLORS))
    return np.stack([np.interp(shades, steps, COLORS[:, k]) for k in range(3)], -1).astype(np.uint8)


def band_colors() -> list[tuple[int, int, int]]:
    """Return the color of each band: that of its middle."""
    return [(r, g, b) for r, g, b in colors_of((np.arange(BANDS) + 0.5) / BANDS).tolist()]


def legend(label: str, low: float, high: float) -> str:
    """Return a bar of colors with the label and the values at its ends and in its middle, as HTML."""
    colors = ", ".join(f"rgb{tuple(color)}" for color in COLORS.tolist())
    marks = "".join(f"<span>{value:.4g}</span>" for value in (low, 0.5 * (low + high), high))
    return (
        f'<div style="width: 220px; margin: 4px; font: 13px sans-serif">{html.escape(label)}'
        f'<div style="height: 12px; background: linear-gradient(to right, {colors})"></div>'
        f'<div style="display: flex; justify-content: space-between">{marks}</div></div>'
    )
