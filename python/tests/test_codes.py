"""Codes written in Python: what is proved of them, and what is refused."""

import numpy as np
import pytest
from miser import Miser

import kintsu
from kintsu import gf


def test_miser_is_proved_and_repairs_data_from_one_and_a_half_blocks():
    report = Miser().prove()
    assert (report.name, report.distance, report.w) == ("user:miser", 3, 2)
    assert [repair.read for repair in report.repairs] == [1.5, 1.5, 2, 2]
    assert [repair.helpers for repair in report.repairs] == [3, 3, 2, 2]
    assert (report.degraded, report.overhead) == (1.5, 2)
    assert [count.fraction for count in report.losses] == [1, 1, 1]


def test_reports_and_tables_show_what_they_hold():
    report = Miser().prove()
    assert "distance       3: any 2 losses can be decoded" in repr(report)
    assert "<td>b0</td><td>1.5</td>" in report._repr_html_()
    table = kintsu.compare([Miser(), "rs:n=4,k=2"])
    assert [(row["code"], row["degraded"]) for row in table] == [("user:miser", 1.5), ("rs:n=4,k=2", 2)]
    assert repr(table).splitlines()[0].split()[:4] == ["code", "n", "k", "w"]


def test_a_generator_in_any_form_is_the_same_code():
    rs = kintsu.parse("rs:n=6,k=4")
    matrix = rs.generator
    for rows in (matrix, matrix.tolist(), [bytes(row) for row in matrix], matrix.astype(np.int64)):
        code = kintsu.Code.from_generator(rows, 6, 4, name="mine")
        assert code.prove().distance == 3
        assert np.array_equal(code.generator, matrix)
        assert code.definition()["name"] == "user:mine"
    data = [bytes([i]) * 10 for i in range(4)]
    assert all(np.array_equal(a, b) for a, b in zip(rs.encode(data), code.encode(data)))


def test_a_distance_is_found_where_none_is_claimed():
    lrc = kintsu.parse("azure-lrc:n=10,k=6,r=3")
    assert kintsu.Code.from_generator(lrc.generator, 10, 6).prove().distance == lrc.distance == 4
    twice = [[1, 0], [0, 1], [1, 1], [1, 1]]
    assert kintsu.Code.from_generator(twice, 4, 2).prove().distance == 2
    with pytest.raises(kintsu.InvalidError, match="expected 2 .any 1 losses.*cannot decode the loss of b1"):
        kintsu.Code.from_generator([[1, 0], [0, 1], [1, 0]], 3, 2).prove()


def test_groups_are_repaired_from_and_kept_together():
    lrc = kintsu.parse("azure-lrc:n=10,k=6,r=3")
    code = kintsu.Code.from_generator(lrc.generator, 10, 6, groups=lrc.groups, distance=4)
    assert code.prove().repairs[0].read == 3
    assert code.place() == lrc.place() == [[0, 1, 2, 6], [3, 4, 5, 7], [8, 9]]
    assert kintsu.Code.from_generator(lrc.generator, 10, 6).place() == [list(range(10))]


def test_a_placement_of_ones_own():
    class Spread(Miser):
        def place(self):
            return [[0, 2], [1, 3]]

    assert Spread().prove().place == ((0, 2), (1, 3))

    class Half(Miser):
        def place(self):
            return [[0, 2]]

    with pytest.raises(kintsu.InvalidError, match="each block once"):
        Half().prove()


def test_built_in_codes_have_the_same_interface():
    code = kintsu.parse("rs:k=6,n=9")
    assert (code.name, code.n, code.k, code.w, code.distance) == ("rs:n=9,k=6", 9, 6, 1, 4)
    assert code.prove().arc == 6
    assert code.recoverable([0, 4, 8]) and not code.recoverable([0, 1, 4, 8])
    assert code.definition() is None
    assert "rs" in [family["name"] for family in kintsu.families()]
    for family in kintsu.families():
        assert kintsu.parse(family["example"]).prove().distance >= 2


def test_graphs_are_built_read_and_drawn():
    dag = kintsu.Dag(4, 1)
    partial = dag.fresh()
    dag.join(partial, [0, 1], [1, 2])
    dag.join(3, [partial, 2], [1, 1])
    both = dag.bind_x([3])
    dag.bind_y(both, 2)
    assert (dag.leaves, dag.targets) == ([0, 1, 2], [3])
    assert dag.joins[partial] == ([0, 1], [1, 2])
    assert dag._repr_svg_().startswith("<svg")
    assert "target   v3" in dag.to_text() == str(dag)
    graph = Miser().decode_graph([1])
    assert graph.targets == [2, 3] and all(leaf % 2 == 1 for leaf in graph.leaves)
    graph.prove(Miser().generator)


def test_zero_terms_are_left_out_and_numpy_numbers_are_numbers():
    dag = kintsu.Dag(3)
    dag.join(np.int64(2), np.arange(2), np.array([0, 7], dtype=np.uint8))
    assert dag.joins == {2: ([1], [7])}


def test_the_field_is_the_field():
    assert gf.mul(2, 0x80) == 0x1D
    assert all(gf.mul(a, gf.inv(a)) == 1 == gf.div(a, a) for a in range(1, 256))
    with pytest.raises(kintsu.InvalidError, match="1 to 255"):
        gf.inv(0)
    with pytest.raises(kintsu.InvalidError, match="0 to 255, got 256"):
        gf.mul(1, 256)


def test_super_and_mixins_find_the_right_method():
    class Louder(Miser):
        asked = ()

        def encode(self, dag):
            super().encode(dag)
            self.asked += (dag.n,)

    louder = Louder()
    assert louder.prove().distance == 3 and louder.asked == (4,)

    class Xor:
        def encode(self, dag):
            dag.join(2, [0, 1], [1, 1])

    class Mixed(Xor, kintsu.Code):
        n, k = 3, 2

    assert Mixed().encode([b"a", b"b"])[0].tobytes() == b"\x03"


# What is refused.


def refused(code, match):
    with pytest.raises(kintsu.InvalidError, match=match) as caught:
        code.prove()
    assert isinstance(caught.value, ValueError)
    return caught.value


def test_a_repair_that_does_not_prove_is_refused():
    class Wrong(Miser):
        def decode(self, dag, available, lost):
            (c,) = lost
            for sub in range(2):
                dag.join(2 * c + sub, [2 * available[0] + sub, 2 * available[1] + sub], [1, 1])

    error = refused(Wrong(), "repair graph: expected a graph that proves")
    assert "should carry" in str(error)


def test_an_encode_that_does_not_give_the_matrix_is_refused():
    class Both(kintsu.Code):
        n, k = 3, 2
        matrix = ((1, 0), (0, 1), (1, 2))

        def encode(self, dag):
            dag.join(2, [0, 1], [1, 1])

    refused(Both(), "v2 should carry 0102, but carries 0101")


def test_an_encode_that_raises_keeps_its_exception():
    class Broken(Miser):
        def encode(self, dag):
            return 1 // 0

    error = refused(Broken(), "encode of user:broken: expected a graph, got ZeroDivisionError")
    assert isinstance(error.__cause__, ZeroDivisionError)

    class Repair(Miser):
        def decode(self, dag, available, lost):
            raise KeyError(lost[0])

    error = refused(Repair(), "decode of user:repair for the loss of b0: .*KeyError")
    assert isinstance(error.__cause__, KeyError)


def test_graphs_that_are_no_encoding_are_refused():
    def coded(build):
        class Short(kintsu.Code):
            n, k = 4, 2

            def encode(self, dag):
                build(dag)

        return Short()

    refused(coded(lambda dag: None), "every parity symbol joined, v2 to v3")
    refused(coded(lambda dag: dag.join(2, [0, 3], [1, 1])), "leaf v3 of an encode graph: expected a data symbol")
    refused(coded(lambda dag: dag.join(2, [0, 1], [1, 256])), "coefficient in the join of v2.*0 to 255, got 256")
    refused(coded(lambda dag: dag.join(2, [0, 1], [1])), "one coefficient each, got 2 children, 1 coef")
    refused(coded(lambda dag: dag.join(-1, [0], [1])), "vertex: expected 0 to")
    refused(kintsu.Code(), "expected attributes n and k")
    for n, k, w in ((2, 2, 1), (256, 2, 1), (3, 0, 1), (3, 2, 0), (3.5, 2, 1), ("3", 2, 1), (-3, -4, 1)):
        refused(kintsu.Code.from_generator([], n, k, w), "expected whole numbers with 1 <= k < n <= 255")


@pytest.mark.parametrize(
    ("matrix", "match"),
    [
        ([[1, 0], [0, 1]], r"expected 3 rows of 2 elements \(n\*w x k\*w\), got 2 rows"),
        ([[1, 0], [0, 1], [1]], "got 1 in row 2"),
        ([[1, 0], [0, 1], [1, 256]], r"entry \(2, 1\) of the generator: expected .*0 to 255, got 256"),
        ([[1, 0], [0, 1], [1, -1]], "0 to 255, got -1"),
        ([[1, 0], [0, 1], [1, "x"]], "0 to 255, got 'x'"),
        ([[1, 0], [0, 1], [1, 0.5]], "0 to 255, got 0.5"),
        ([[1, 1], [0, 1], [1, 1]], "expected the identity on top"),
        (7, "expected rows of numbers, got int"),
    ],
)
def test_matrices_that_are_none_are_refused(matrix, match):
    refused(kintsu.Code.from_generator(matrix, 3, 2), match)


def test_false_claims_are_refused_with_a_loss_that_shows_it():
    rows = [[1, 0], [0, 1], [1, 1], [1, 1]]
    refused(kintsu.Code.from_generator(rows, 4, 2, distance=3), "cannot decode the loss of")
    refused(kintsu.Code.from_generator(rows, 4, 2, groups=[[0, 1]]), "local repair group")
    refused(kintsu.Code.from_generator(rows, 4, 2, name="Not A Name"), "name of a user code")
    with pytest.raises(kintsu.InvalidError, match="code family"):
        kintsu.parse("nonsense:n=1")
