from rankscope.lab.results.program import PROGRAM, Batch, due_runs


def test_the_program_has_every_run_once_and_the_first_seeds_first() -> None:
    keys = [due.key for due in due_runs()]
    assert len(keys) == len(set(keys))
    assert [batch.optional for batch in PROGRAM] == sorted(batch.optional for batch in PROGRAM)
    first = {}
    for name, _, seed in keys:
        first.setdefault(name, seed)
    assert set(first.values()) == {0}
    for name in ("yunis2024/mlp", "yunis2024/vgg"):
        due = {each.seed for each in due_runs() if each.key[0] == name and not each.batch.optional}
        assert due == {0, 1, 2}


def test_the_command_of_a_batch() -> None:
    batch = Batch("yunis2024/vgg", (1, 2))
    assert batch.command == "rankscope run yunis2024/vgg --scale paper --seed 1 --seed 2"
