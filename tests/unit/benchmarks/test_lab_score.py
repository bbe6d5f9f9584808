"""The laboratory's scores, on made-up results."""

import hashlib
import json

import pytest
from benchmarks.figure import put
from benchmarks.lab import faults, report, score, traced
from benchmarks.lab.faults import Case
from benchmarks.lab.score import Result, Rules

LAB = faults.read()
RULES = Rules(LAB)


def result(kind="", grade=0, answer="", cost=None, why="", half="known", **others):
    setup = LAB.fault(kind).setup if kind else "serial"
    return Result(
        name=f"{kind or 'clean'}-{grade}-{answer}",
        setup=setup,
        kind=kind,
        grade=grade,
        half=half if kind else "",
        cost=cost,
        answer=answer,
        why=why,
        others=others,
    )


def test_an_expected_answer_is_right():
    assert RULES.right(result("read", 40, cost=0.3), "input-bound")
    assert not RULES.right(result("read", 40, cost=0.3), "communication-bound")
    assert not RULES.right(result("read", 40, cost=0.3), "mixed")


def test_below_ten_per_cent_the_answer_of_a_clean_run_is_right_too():
    assert RULES.right(result("read", 5, cost=0.05), "compute-bound")
    assert not RULES.right(result("read", 5, cost=0.10), "compute-bound")
    assert not RULES.right(result("read", 5, cost=0.05), "communication-bound")


def test_a_further_answer_is_right_only_if_it_names_the_slow_rank():
    slow = result("rank_input", 40, cost=0.3)
    assert RULES.right(slow, "rank-bound", "The ranks differ.")
    assert not RULES.right(slow, "input-bound", "The device waits for data.")
    assert RULES.right(slow, "input-bound", "The device of rank 1 waits for data.")


def test_only_whole_numbers_name_a_rank():
    assert score.names_rank("Rank 1 is late.", 1)
    assert not score.names_rank("because rank 12 is late", 1)


def test_a_tool_that_gives_no_sentence_need_not_name_the_rank():
    assert RULES.right(result("rank_input", 40, cost=0.3), "input-bound", None)


def test_costly_faults_count_and_silence_is_told_apart():
    found = [
        result("read", 80, "input-bound", 0.4),
        result("read", 40, "mixed", 0.3, half="held_out"),
        result("decode", 40, "compute-bound", 0.3),
        result("decode", 5, "communication-bound", 0.04),
        result(answer="compute-bound"),
    ]
    assert score.costly(found, RULES) == score.Score(right=1, of=3, unanswered=1)
    assert score.costly(found, RULES, half="held_out") == score.Score(0, 1, 1)


def test_other_tools_are_scored_by_the_same_rules():
    found = [result("read", 80, "mixed", 0.4, timer="input-bound")]
    assert score.costly(found, RULES, "timer").right == 1


def test_a_false_alarm_names_a_limit_that_is_not_there():
    found = [
        result(answer="compute-bound"),
        result(answer="mixed"),
        result(answer="undecided"),
        result(answer="input-bound"),
        result(answer="disturbed"),
    ]
    assert [one.answer for one in score.false_alarms(found, RULES)] == ["input-bound", "disturbed"]


def test_the_slow_rank_counts_in_single_and_in_combined_faults():
    found = [
        result("rank_input", 40, "rank-bound", 0.3, why="because rank 1 waits for data"),
        result("rank_backward", 40, "rank-bound", 0.3, why="because rank 0 is late"),
        result("rank_input+all_reduce", 40, "mixed", 0.4, why="and rank 1 waits"),
        result("rank_input", 5, "compute-bound", 0.04),
    ]
    assert score.ranks_named(found, LAB) == score.Score(2, 3, 0)


def test_the_smallest_fault_is_that_from_which_all_larger_ones_are_named():
    found = [
        result("read", 5, "input-bound", 0.05),
        result("read", 10, "compute-bound", 0.09),
        result("read", 20, "input-bound", 0.17),
        result("read", 40, "input-bound", 0.3),
    ]
    assert score.smallest(found, RULES, "read").grade == 20
    assert score.smallest([*found, result("read", 80, "mixed", 0.4)], RULES, "read") is None


def test_shorter_epochs_are_the_worse_fault():
    found = [
        result("epoch_boundary", 50, "compute-bound", 0.05),
        result("epoch_boundary", 10, "input-bound", 0.3),
        result("epoch_boundary", 5, "input-bound", 0.5),
    ]
    assert score.smallest(found, RULES, "epoch_boundary").grade == 10


@pytest.mark.parametrize(
    ("cell", "answer"),
    [
        ({"verdict": "compute-bound"}, "compute-bound"),
        ({"verdict": "compute-bound", "noisy": True}, "disturbed"),
        ({"verdict": "compute-bound", "disturbed": "Somebody else computed."}, "disturbed"),
        ({"status": "invalid", "failed_checks": "fp32;undisturbed"}, "disturbed"),
        ({"status": "invalid", "failed_checks": "fp32"}, "invalid"),
        ({"status": "out_of_memory", "verdict": "memory-limited"}, "memory-limited"),
        ({}, "undecided"),
    ],
)
def test_the_answer_of_a_cell(cell, answer):
    plain = {"status": "ok", "verdict": "", "noisy": False, "disturbed": "", "failed_checks": ""}
    assert score.answer_of(plain | cell) == answer


def test_the_cost_is_against_clean_runs_of_the_setup_beside_it():
    fault = LAB.fault("read")
    cases = [
        Case("serial", number=0),
        Case("ranks", number=0),
        Case("serial", number=1),
        Case("serial", fault, 40),
        Case("serial", number=2),
        Case("serial", number=3),
        Case("serial", number=4),
    ]
    rates = [10.0, 999.0, 100.0, 80.0, 100.0, 110.0, 999.0]
    known = {case.name: rate for case, rate in zip(cases, rates, strict=True)}
    # Two on each side: 10 and 100 before, 100 and 110 after.
    assert score.cost(3, cases, known) == pytest.approx(0.2)
    assert score.cost(3, cases, {**known, "read-40": None}) is None


def test_a_run_that_ran_out_of_memory_lost_everything():
    cell = {
        **{"status": "out_of_memory", "verdict": "memory-limited", "why": "Out.", "noisy": None},
        **{"disturbed": "", "failed_checks": "", "samples_per_s": None},
        **{"run_samples_per_s": None, "run_wait_share": None},
    }
    cases = [Case("serial", LAB.fault("memory_cap"), 150)]
    (found,) = score.results(cases, {"memory_cap-150": cell}, {})
    assert (found.cost, found.answer, found.half) == (1.0, "memory-limited", "held_out")
    assert found.others == {"data-wait timer": "out_of_memory"}


def test_a_rejected_run_has_a_cost_and_is_no_clean_run_to_compare_with():
    def cell(status, rate):
        return {
            **{"status": status, "verdict": "", "why": "", "noisy": None, "disturbed": ""},
            **{"failed_checks": "undisturbed" * (status == "invalid"), "run_wait_share": 0.2},
            **{"samples_per_s": rate if status == "ok" else None, "run_samples_per_s": rate},
        }

    stolen = Case("serial", LAB.fault("stolen_core"), 100)
    cases = [Case("serial", number=0), Case("serial", number=1), stolen]
    cells = {
        "clean-serial-0": cell("ok", 100.0),
        "clean-serial-1": cell("invalid", 10.0),
        "stolen_core-100": cell("invalid", 60.0),
    }
    found = score.results(cases, cells, {})[2]
    assert (found.cost, found.answer) == (pytest.approx(0.4), "disturbed")
    assert found.others == {"data-wait timer": "input-bound"}


def test_the_tables_count_and_mark_right_answers():
    found = [
        result("read", 80, "input-bound", 0.4, timer="input-bound"),
        result("rank_backward", 80, "mixed", 0.4, why="They differ.", timer="compute-bound"),
        result(answer="compute-bound", timer="compute-bound"),
        result(answer="input-bound", why="The device waits.", timer="input-bound"),
    ]
    text = report.markdown(found, LAB, "Measured.")
    assert "| right where the fault costs 10% | 1 of 2 (50%) | 1 of 2 (50%) |" in text
    assert "| false alarms in clean runs | 1 of 2 | 1 of 2 |" in text
    assert "| clean: serial | **1** | 1 |  |" in text
    assert "- rank_backward-80-mixed (known, cost 40%): mixed. They differ." in text


def test_the_diagnoses_of_traceml_in_our_words(tmp_path):
    summary = tmp_path / "final_summary.json"
    for kind, said in {"INPUT_STRAGGLER": "rank-bound", "BALANCED": "undecided"}.items():
        summary.write_text(json.dumps({"primary_diagnosis": {"kind": kind}}))
        assert traced.answer(summary) == said


def test_the_tables_replace_the_part_between_the_marks(tmp_path):
    page = tmp_path / "page.md"
    begin, end = (f"<!-- {which}: written by `make lab` -->" for which in ("begin", "end"))
    page.write_text(f"Before.\n{begin}\nold\n{end}\nAfter.\n")
    for _ in range(2):
        put("new", page, "make lab")
    assert page.read_text() == f"Before.\n{begin}\n\nnew\n\n{end}\nAfter.\n"
    page.write_text("No marks.")
    with pytest.raises(ValueError, match="no part between"):
        put("new", page, "make lab")


def test_bold_marks_numbers_of_right_answers_only():
    """An answer that is right where a fault costs little has no place among the costly ones."""
    found = [result("read", 5, "compute-bound", 0.02), result("read", 80, "input-bound", 0.4)]
    said, row = report.matrix(found, RULES)
    assert dict(zip(said, row, strict=True)) == {"planted": "read", "input-bound": "**1**"}


def test_the_faults_are_those_that_were_committed_before_the_verdicts_on_cpus_changed():
    """0780e51 added them; the rules for cores and slow ranks came later (c9694e0, de2bc0f)."""
    digest = hashlib.sha256(faults.FILE.read_bytes()).hexdigest()
    assert digest == "0989cccc98f4cd48f1b81d6fde54b29b21cec4c8460bd65106937bb220e338fe"
