"""Recorded pages."""

import html
from pathlib import Path


class Replay(type(Path())):
    """The path of a recorded page; in a notebook it shows the page itself."""

    def _repr_html_(self) -> str:
        page = html.escape(self.read_text(encoding="utf-8"), quote=True)
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 480px; border: 0"></iframe>'


def titled(page: str, title: str) -> str:
    """Return the page with a title of its own."""
    return page.replace("<title>Viser</title>", f"<title>{html.escape(title)}</title>", 1)


def with_overlay(page: str, overlay: str) -> str:
    """Return the page with HTML in its upper right corner, if there is any."""
    if not overlay:
        return page
    style = "position: fixed; right: 12px; top: 12px; z-index: 10; padding: 4px; pointer-events: none; "
    style += "color: #222; background: rgba(255, 255, 255, 0.85); border-radius: 4px"
    place = page.rindex("</body>")
    return f'{page[:place]}<div style="{style}">{overlay}</div>{page[place:]}'
