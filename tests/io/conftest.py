import pytest


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    # MuJoCo writes MUJOCO_LOG.TXT into the working folder when a file uses deprecated attributes.
    monkeypatch.chdir(tmp_path)
