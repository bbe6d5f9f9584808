"""`python -m feedrate tune`: a target that only those get who ask for it."""


def test_the_advice_is_measured_on_data_and_store_of_its_own(project):
    done = project.call("feedrate", "tune", "--dry-run")
    assert done.returncode == 0, done.stdout
    for rule in ("preprocess_dataset", "store_dataset", "tune_cpu"):
        assert f"rule {rule}:" in done.stdout
    assert "output: results/tuning/cpu/advice.txt" in done.stdout
    assert "train_cpu" not in done.stdout


def test_nobody_else_gets_it(project):
    assert not [rule for rule in project.planned() if rule.startswith("tune")]


def test_it_is_a_target_of_snakemake_too(project):
    planned = project.planned("tune", "--config", "devices=[cpu]")
    assert (planned["tune"], planned["tune_cpu"], planned["store_dataset"]) == (1, 1, 1)
    assert not [rule for rule in planned if rule.startswith("train")]
