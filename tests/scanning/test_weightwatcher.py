"""Values under WeightWatcher's names are WeightWatcher's, where both define one."""

import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import rankscope as rs
from rankscope.scanning.weightwatcher import weightwatcher_table
from scanning.cases import saved

EQUAL = ("M", "N", "Q", "num_evals", "matrix_rank", "rank_loss")
CLOSE = ("alpha", "alpha_weighted", "entropy", "lambda_max", "log_alpha_norm", "log_norm")
CLOSE += ("log_spectral_norm", "norm", "spectral_norm", "stable_rank", "sv_max", "sv_min")


@pytest.mark.filterwarnings("ignore")
def test_columns_are_those_of_the_other_tool(tmp_path: Path) -> None:
    weightwatcher = pytest.importorskip("weightwatcher")
    torch.manual_seed(0)
    model = nn.ModuleDict(
        {"wide": nn.Linear(100, 60), "tall": nn.Linear(60, 80), "emb": nn.Embedding(50, 30)}
    )
    path = saved(tmp_path / "x.safetensors", dict(model.state_dict()))
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        theirs = weightwatcher.WeightWatcher(model=model).analyze().set_index("longname")
    finally:
        logging.disable(level)
    ours = weightwatcher_table(rs.scan(path).checkpoints).set_index("longname")
    assert set(ours.index) == set(theirs.index)
    theirs = theirs.loc[ours.index]
    for column in EQUAL:
        assert ours[column].tolist() == theirs[column].tolist(), column
    for column in CLOSE:
        np.testing.assert_allclose(
            ours[column].to_numpy(float), theirs[column].to_numpy(float), rtol=1e-5, err_msg=column
        )
    assert ours["layer_type"].tolist() == theirs["layer_type"].tolist()
