"""The end of a run on the terminal: the answers of all studies, in the words of the page."""

from pathlib import Path
from types import SimpleNamespace

from feedrate.cli import run
from feedrate.core import paths
from feedrate.report.sentences import Statement


def test_each_study_and_device_has_its_answer(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("first", "second", "without-a-plan"):
        file = Path(paths.ANSWERS_CSV.format(study=name))
        file.parent.mkdir(parents=True)
        file.write_text("")
        plan = Path(paths.STUDY_PLAN.format(study=name))
        if name != "without-a-plan":
            plan.parent.mkdir(parents=True, exist_ok=True)
            plan.write_text("")

    class Study(SimpleNamespace):
        @classmethod
        def read(cls, plan, folder):
            assert plan.stem == folder.name
            return cls(study=SimpleNamespace(title=f"The {plan.stem} study"))

    said = [Statement("Use 1 worker.", device="CPU"), Statement("Use 8 workers.", device="H100")]
    monkeypatch.setattr(run, "StudyResults", Study)
    monkeypatch.setattr(run, "answers", lambda _: said)
    run.show(Path("report.html"))
    lines = [line.strip() for line in capsys.readouterr().out.splitlines() if line.strip()]
    rows = ["CPU   Use 1 worker.", "H100  Use 8 workers."]
    page = f"The report: {tmp_path / 'report.html'}"
    assert lines == ["The first study", *rows, "The second study", *rows, page]
