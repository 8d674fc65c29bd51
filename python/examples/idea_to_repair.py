"""From an idea to a repaired file: MISER (4,2), the code of OpenEC's Fig. 2, on a cluster of its own."""

import kintsu
from kintsu import gf


class Miser(kintsu.Code):
    """Every parity sub-block mixes its own row of the data with its own column."""

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

    def decode(self, dag, available, lost):  # a data block: half of each of the three others
        if lost[0] < self.k:
            self.solve(dag, [2 * lost[0], 2 * lost[0] + 1], [2 * b + lost[0] for b in available])


print(Miser().prove())
print(kintsu.compare([Miser(), "rs:n=4,k=2"]))
data = bytes(range(256)) * (1 << 15)  # 8 MiB
with kintsu.LocalCluster(nodes=6, racks=6) as cluster:
    for code in (Miser(), "rs:n=4,k=2"):
        name = cluster.put(data, "film", code=code, replace=True)["code"]
        cluster.stop_node(node := cluster.stat("film")["stripes"][0]["blocks"][0]["node"])
        assert cluster.get("film") == data  # degraded, and the same
        repair = cluster.repair(name="film", method="conventional")
        assert cluster.get("film") == data
        print(f"{name}: {repair['blocks']} block repaired, {repair['bytes_read']} bytes read")
        cluster.start_node(node)
