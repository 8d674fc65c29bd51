"""One cluster for all tests that need one: the kintsu program that KINTSU_BIN names."""

import os

import pytest

import kintsu


@pytest.fixture(scope="session")
def cluster():
    if not os.environ.get("KINTSU_BIN"):
        pytest.skip("KINTSU_BIN does not name the kintsu program; scripts/python-test.sh sets it")
    with kintsu.LocalCluster(nodes=8, racks=8) as cluster:
        yield cluster
