"""`feedrate selftest` and `feedrate tune`: targets that only those get who ask for them."""


def test_nobody_else_gets_them(project):
    assert not [rule for rule in project.planned() if rule.startswith(("selftest", "tune"))]


def test_a_selftest_needs_drawn_data_and_no_study_whatever_the_configuration_trains_on(project):
    done = project.call("feedrate", "selftest", "--dry-run", "--dataset", "hub")
    assert done.returncode == 0, done.stdout
    for rule in ("preprocess_dataset", "selftest_cpu"):
        assert f"rule {rule}:" in done.stdout
    assert "output: results/selftest/cpu/selftest.txt" in done.stdout
    assert "resources/datasets/generated/prepared/manifest.json" in done.stdout
    assert "resources/datasets/hub" not in done.stdout
    assert "train_cpu" not in done.stdout


def test_advice_is_measured_on_data_and_store_of_its_own(project):
    done = project.call("feedrate", "tune", "--dry-run")
    assert done.returncode == 0, done.stdout
    for rule in ("preprocess_dataset", "store_dataset", "tune_cpu"):
        assert f"rule {rule}:" in done.stdout
    assert "output: results/tuning/cpu/advice.txt" in done.stdout
    assert "train_cpu" not in done.stdout


def test_they_are_targets_of_snakemake_too(project):
    planned = project.planned("selftest", "tune", "--config", "devices=[cpu]")
    asked = ("selftest", "selftest_cpu", "tune", "tune_cpu", "store_dataset")
    assert {rule: planned[rule] for rule in asked} == dict.fromkeys(asked, 1)
    assert not [rule for rule in planned if rule.startswith("train")]
