"""A job past its time limit on a real Slurm. It takes four minutes, while other tests run."""

from fault_workflow import jobs_of, wait_for

from faults import fault


def test_a_time_limit_is_tried_once_more_with_a_longer_one_and_then_recorded(cluster, hanging):
    row = fault("time limit", "slurm")
    assert hanging.wait(420) == row.exit_code
    word = hanging.outcome("a100")
    assert word["status"] == row.status
    assert "Slurm stopped the job at its time limit, 1 min and then 2 min" in word["cause"]
    assert hanging.trainings("a100") == 2
    assert jobs_of(cluster, hanging, "train_a100")[-1] == "COMPLETED"
    assert hanging.project.record("workers=0~decode=host", "a100")["status"] == "failed"
    assert (hanging.root / "report.html").exists() is row.report, hanging.output
    assert hanging.half_done() == []
    wait_for(lambda: not hanging.processes(), hanging, 60)
