import json
from pathlib import Path

import numpy as np
import pytest

from lab.papers.archived import archive
from lab.papers.yunis2024.official.made_evaluation import made
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.yunis2024.official.evaluation import COST, EVALUATION, FOLDER
from rankscope.lab.papers.yunis2024.runs import base_runs_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / FOLDER).mkdir(parents=True)
    np.savez(tmp_path / FOLDER / EVALUATION, **made())
    cost = {"device": "a card", "epochs": 10, "seconds_per_epoch": 2, "seconds_per_checkpoint": 3}
    (tmp_path / FOLDER / COST).write_text(json.dumps(cost))
    return tmp_path


@pytest.fixture(scope="module")
def archived() -> Runs:
    selected, _ = archive("yunis2024").select(base_runs_of("vgg"))
    return selected
