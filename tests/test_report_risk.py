"""Who is at risk, and when: each adversary's strongest attack, client by client and round by round."""

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from report_runs import Balanced, a_row, a_run, risk_rows, text_of

from glasshouse.errors import BadInput
from glasshouse.exhibits import Risk
from glasshouse.report import write_report
from glasshouse.report.words.leaks import exposure_sentence
from glasshouse.verdicts.exposure import Exposure, exposures


def risks(values: list[float], kind: str = "client", half: float | None = 0.05, **changes: Any) -> list[Risk]:
    there = {"attack": "lira", "adversary": "outsider", "chance": 0.5, "n": 100} | changes
    ends = [{"low": v - half, "high": v + half} if half else {} for v in values]
    return [
        Risk(**there, kind=kind, index=index, value=v, **end)
        for index, (v, end) in enumerate(zip(values, ends))
    ]


def exposed(*given: Risk) -> Exposure:
    [exposure] = exposures(given, given[0].kind)
    return exposure


def report_with(folder: Path, rows: list[dict[str, Any]]) -> str:
    a_run(folder, [a_row()], full=False)
    (folder / "curves.json").write_text(json.dumps({"risk": rows}))
    return write_report(folder).read_text()


def test_clients_stand_from_the_most_at_risk_to_the_least() -> None:
    assert [risk.index for risk in exposed(*risks([0.6, 0.5, 0.71, 0.52])).risks] == [2, 0, 3, 1]


def test_the_client_easiest_to_find_is_named_and_those_without_a_leak_are_counted() -> None:
    said = exposure_sentence(exposed(*risks([0.6, 0.5, 0.71, 0.52])))
    assert said == (
        "Client 2's records are the easiest to find (AUC 0.710); for 2 of 4 clients nothing was shown."
    )


def test_a_wide_interval_does_not_make_a_client_the_easiest_to_find() -> None:
    unsure = risks([0.7], half=0.3)[0]
    sure = risks([0.0, 0.6])[1]
    assert exposure_sentence(exposed(unsure, sure)).startswith(
        "Client 1's records are the easiest to find (AUC 0.600)"
    )


def test_intervals_that_all_overlap_are_not_read_as_an_order() -> None:
    assert exposure_sentence(exposed(*risks([0.6, 0.61, 0.62]))).endswith(
        "All intervals overlap, so which client comes first may be luck."
    )
    assert "luck" not in exposure_sentence(exposed(*risks([0.6, 0.61, 0.8])))


def test_no_leak_for_any_client_is_no_proof_of_safety() -> None:
    assert exposure_sentence(exposed(*risks([0.5, 0.52]))) == (
        "Nothing was shown for any of 2 clients, which is no proof of safety."
    )


def test_without_intervals_nobody_is_said_to_be_at_risk() -> None:
    said = exposure_sentence(exposed(*risks([0.5, 0.9], half=None)))
    assert "without intervals nothing can be said" in said


def test_rounds_keep_their_order_and_are_counted_from_one() -> None:
    exposure = exposed(*reversed(risks([0.5, 0.56, 0.7, 0.6], "round")))
    assert [risk.index for risk in exposure.risks] == [0, 1, 2, 3]
    assert exposure_sentence(exposure) == (
        "Records are easiest to find after round 3 (AUC 0.700), and a leak first shows after round 2; "
        "for 1 of 4 rounds nothing was shown."
    )


def test_the_attack_with_the_highest_mean_stands_for_the_adversary() -> None:
    weak, strong = risks([0.9, 0.4], attack="gap"), risks([0.7, 0.7], attack="rmia")
    exposure = exposed(*weak, *strong)
    assert exposure.attack == "rmia"
    assert exposure.others == (("gap", pytest.approx(0.65)),)


def test_repeats_of_a_client_are_averaged_and_their_intervals_enveloped() -> None:
    [risk] = exposed(*risks([0.6]), *risks([0.7])).risks
    assert (risk.value, risk.low, risk.high) == pytest.approx((0.65, 0.55, 0.75))


def test_adversaries_stand_in_order_of_access() -> None:
    rows = [risk for who in ("curious server", "outsider") for risk in risks([0.6], adversary=who)]
    assert [exposure.adversary for exposure in exposures(rows, "client")] == ["outsider", "curious server"]


@pytest.mark.parametrize("clients", [1, 10, 100, 200])
def test_any_number_of_clients_is_drawn(tmp_path: Path, clients: int) -> None:
    page = report_with(tmp_path, risk_rows(clients))
    Balanced().check(page)
    assert "Who is at risk, and when" in page
    drawing = (tmp_path / "figures" / "risk-clients-outsider.svg").read_text()
    ElementTree.fromstring(drawing)
    assert (tmp_path / "figures" / "risk-rounds-curious-server.png").is_file()
    named = set(re.findall(r">(\d+)</text>", drawing))
    assert named >= {str(index) for index in range(clients)} or clients > 130
    assert bool(re.search(r'<figure class="wide" id="figure-risk', page)) == (clients > 25)


def test_a_client_without_a_value_is_left_out(tmp_path: Path) -> None:
    rows = risk_rows(3, 0)
    rows.append(rows[0] | {"index": 3, "value": None, "low": None, "high": None})
    assert "of 3 clients" in text_of(report_with(tmp_path, rows))


def test_a_page_without_risks_has_no_such_section(tmp_path: Path) -> None:
    assert "Who is at risk" not in report_with(tmp_path, [])


def test_a_risk_of_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=re.escape("at risk.0.kind")):
        report_with(tmp_path, [risk_rows(1)[0] | {"kind": "planet"}])
