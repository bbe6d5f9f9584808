"""`python -m feedrate selftest`: a target that only those get who ask for it."""


def test_it_needs_the_data_and_no_study(project):
    done = project.call("feedrate", "selftest", "--dry-run")
    assert done.returncode == 0, done.stdout
    for rule in ("preprocess_dataset", "selftest_cpu"):
        assert f"rule {rule}:" in done.stdout
    assert "output: results/selftest/cpu/selftest.txt" in done.stdout
    assert "train_cpu" not in done.stdout


def test_it_draws_its_data_whatever_the_configuration_trains_on(project):
    done = project.call("feedrate", "selftest", "--dry-run", "--dataset", "hub")
    assert done.returncode == 0, done.stdout
    assert "resources/datasets/generated/prepared/manifest.json" in done.stdout
    assert "resources/datasets/hub" not in done.stdout


def test_nobody_else_gets_it(project):
    assert not [rule for rule in project.planned() if rule.startswith("selftest")]


def test_an_edit_of_its_parts_reruns_nothing_else(project):
    planned = project.planned("selftest", "--config", "devices=[cpu]")
    assert (planned["selftest"], planned["selftest_cpu"]) == (1, 1)
    assert not [rule for rule in planned if rule.startswith(("train", "tune"))]
