"""MISER (4,2), the code of OpenEC's Fig. 2, as someone would write it."""

import kintsu
from kintsu import gf


class Miser(kintsu.Code):
    """A data block is repaired from half of each of the three others."""

    n, k, w = 4, 2, 2

    def encode(self, dag):
        cauchy = [[gf.inv(i ^ (2 + j)) for j in range(2)] for i in range(2)]
        for j in range(2):
            for c in range(2):
                coefs = [0] * 4
                for i in range(2):
                    coefs[2 * i + c] ^= cauchy[i][j]
                    coefs[2 * c + i] ^= gf.div(cauchy[i][j], 2)
                dag.join(2 * (2 + j) + c, range(4), coefs)

    def decode(self, dag, available, lost):
        (c,) = lost
        if c < self.k:
            self.solve(dag, [2 * c, 2 * c + 1], [2 * b + c for b in available])
