"""Tables over parameters and lifetimes, as far as Python adds to them."""

import pytest
from miser import Miser

import kintsu


def test_a_study_has_the_worked_values_of_the_paper():
    rows = kintsu.analysis.study(range(10, 11), families=["azure-lrc", "rs"])
    (row,) = [row for row in rows if (row["family"], row["k"], row["r"]) == ("azure-lrc", 6, 3)]
    assert (row["nrc"], row["degraded"], row["d"]) == (6, 3, 4)
    assert {row["n"] for row in rows} == {10}
    assert {row["n"] for row in kintsu.analysis.study((9, 10), families=["rs"])} == {9, 10}


def test_a_study_of_nothing_or_too_much_is_refused():
    with pytest.raises(kintsu.InvalidError, match="expected"):
        kintsu.analysis.study(range(12, 9))
    with pytest.raises(kintsu.InvalidError, match="expected"):
        kintsu.analysis.study((9, 255))


def test_lives_are_longer_with_more_parity_and_faster_repair():
    def years(code, **environment):
        return kintsu.analysis.reliability(code, 40, **environment)["reliability"]["stripe"]["mttdl_years"]

    assert years("rs:n=10,k=6") > years("rs:n=9,k=6")
    assert years(Miser()) > years("rs:n=4,k=2")
    assert years(Miser(), bandwidth=1e9) > years(Miser())
    apart, together = (kintsu.analysis.reliability(Miser(), 40, racks)["reliability"]["racks"] for racks in (4, 1))
    assert apart["survives_any_rack"] and not together["survives_any_rack"]
    with pytest.raises(kintsu.InvalidError, match="one of its fields, got colour"):
        years(Miser(), colour=1)
    with pytest.raises(kintsu.InvalidError, match="positive|above"):
        years(Miser(), bandwidth=0)


def test_advice_meets_what_was_asked():
    advice = kintsu.analysis.advise(20, 5, tolerate=2, overhead=1.6, survive_rack=True, widest=12)["advice"]
    assert advice["answers"] and advice["answers"][0]["reasons"]
    for answer in advice["answers"]:
        assert answer["d"] >= 3 and answer["n"] / answer["k"] <= 1.6 and answer["n"] <= 12
        assert kintsu.parse(answer["code"]).distance == answer["d"]
    impossible = kintsu.analysis.advise(6, tolerate=3, overhead=1.1, widest=6)["advice"]
    assert not impossible["answers"] and impossible["relaxations"]
    with pytest.raises(kintsu.InvalidError, match="degraded, recovery or balanced"):
        kintsu.analysis.advise(20, tolerate=2, overhead=2, objective="best")
    with pytest.raises(kintsu.InvalidError, match="5 nodes in 6 racks"):
        kintsu.analysis.advise(5, 6, tolerate=2, overhead=2)
