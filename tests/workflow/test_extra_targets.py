"""`feedrate selftest`: a target that only those get who ask for it."""


def test_a_selftest_needs_drawn_data_and_no_study_whatever_the_configuration_trains_on(project):
    done = project.call("feedrate", "selftest", "--dry-run", "--dataset", "hub")
    assert done.returncode == 0, done.stdout
    for rule in ("preprocess_dataset", "selftest_cpu"):
        assert f"rule {rule}:" in done.stdout
    assert "output: results/selftest/cpu/selftest.json" in done.stdout
    assert "resources/datasets/generated/prepared-" in done.stdout
    assert "resources/datasets/hub" not in done.stdout
    assert "train_cpu" not in done.stdout


def test_it_is_a_target_of_snakemake_too(project):
    planned = project.planned("selftest", "--config", "devices=[cpu]")
    asked = ("selftest", "selftest_cpu")
    assert {rule: planned[rule] for rule in asked} == dict.fromkeys(asked, 1)
    assert not [rule for rule in planned if rule.startswith("train")]
