"""Seeing robots: a page in the browser with sliders and a timeline, and standalone HTML files that replay a motion.

    from adjoin.viewer import Viewer, record

    viewer = Viewer(model)                       # a page on this machine, at viewer.url
    viewer.play(path.q, dt, contacts=path.outputs["contacts"])
    record(model, path.q, dt, "motion.html")     # plays offline
    record_soft(SoftBody(positions), dt, "soft.html")

Pages are made with viser, `pip install 'adjoin[viewer]'`.
"""

from adjoin.viewer.replay import record
from adjoin.viewer.replay_page import Replay
from adjoin.viewer.soft import SoftBody, record_soft
from adjoin.viewer.viewer import Viewer
from adjoin.viewer.visuals import read_visuals

__all__ = ["Replay", "SoftBody", "Viewer", "read_visuals", "record", "record_soft"]
