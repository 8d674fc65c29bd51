"""Buffers coded: the right bytes, in whatever form they come, and without copies."""

import itertools
import os
import sys
import threading

import numpy as np
import pytest
from miser import Miser

import kintsu
from kintsu import gf


def noise(blocks, length, seed=1):
    return list(np.random.default_rng(seed).integers(0, 256, (blocks, length), dtype=np.uint8))


def test_parity_is_the_generator_times_the_data():
    for code in (kintsu.parse("rs:n=6,k=4"), kintsu.parse("azure-lrc:n=8,k=4,r=2"), Miser()):
        data = noise(code.k, 12 * code.w)
        symbols = np.concatenate(data).reshape(code.k * code.w, 12)
        parity = np.concatenate(code.encode(data)).reshape(-1, 12)
        for row, made in zip(code.generator[code.k * code.w :], parity):
            expected = np.zeros(12, dtype=np.uint8)
            for coef, symbol in zip(row, symbols):
                expected ^= np.array([gf.mul(coef, byte) for byte in symbol], dtype=np.uint8)
            assert np.array_equal(made, expected)


def test_every_loss_up_to_the_distance_is_decoded():
    for code in (Miser(), kintsu.parse("azure-lrc:n=8,k=4,r=2")):
        # Longer than the parts in which it is worked on, and no multiple of them.
        data = noise(code.k, 300_002 * code.w)
        blocks = dict(enumerate(data + code.encode(data)))
        distance = code.prove().distance
        for count in range(1, distance):
            for lost in itertools.combinations(range(code.n), count):
                left = {index: block for index, block in blocks.items() if index not in lost}
                found = code.decode(left, lost)
                assert sorted(found) == list(lost)
                assert all(np.array_equal(found[block], blocks[block]) for block in lost)


def test_few_blocks_are_enough_and_too_few_are_not():
    code = kintsu.parse("rs:n=6,k=4")
    data = noise(4, 64)
    parity = code.encode(data)
    found = code.decode({0: data[0], 2: data[2], 4: parity[0], 5: parity[1]}, [3])
    assert list(found) == [3] and np.array_equal(found[3], data[3])
    assert code.decode({0: data[0]}, []) == {}
    with pytest.raises(kintsu.UnrecoverableError, match="expected at least 1 more of"):
        code.decode({0: data[0], 2: data[2], 4: parity[0]}, [3])


def test_all_kinds_of_buffers_give_the_same_bytes():
    code = kintsu.parse("rs:n=5,k=3")
    data = noise(3, 4096)
    expected = [parity.tobytes() for parity in code.encode(data)]
    for kind in (bytes, bytearray, memoryview):
        assert [p.tobytes() for p in code.encode([kind(block.tobytes()) for block in data])] == expected
    frozen = [block.copy() for block in data]
    for block in frozen:
        block.flags.writeable = False
    assert [p.tobytes() for p in code.encode(frozen)] == expected
    whole = np.concatenate(data)
    assert [p.tobytes() for p in code.encode(np.split(whole, 3))] == expected
    assert [len(p) for p in code.encode([b"", b"", b""])] == [0, 0]


@pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="tells the peak of memory on Linux only")
def test_what_is_read_is_not_copied():
    length = 64 << 20
    code = kintsu.parse("rs:n=5,k=4")
    blocks = [bytes(length), bytearray(length), memoryview(bytes(length)), np.zeros(length, dtype=np.uint8)]
    before = peak_kib()
    parity = code.encode(blocks)
    # One block of parity is made; a copy of one block more would show.
    assert peak_kib() - before < 1.5 * length / 1024
    assert len(parity) == 1 and not parity[0].any()


def peak_kib():
    """The most memory this process has used since the last call, in KiB."""
    with open("/proc/self/status") as status:
        peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
    with open("/proc/self/clear_refs", "w") as refs:
        refs.write("5")
    return peak


def test_other_threads_go_on_while_kernels_work():
    code = kintsu.parse("rs:n=14,k=10")
    data = noise(10, 1 << 20)
    begin, ran = threading.Event(), []
    thread = threading.Thread(target=lambda: begin.wait() and ran.append(True))
    thread.start()
    interval = sys.getswitchinterval()
    # From here on another thread runs only where this one lets go of the interpreter of its own accord.
    sys.setswitchinterval(1000)
    try:
        begin.set()
        assert not ran
        # The other thread may be slow to wake up, but not for ever.
        for _ in range(1000):
            code.encode(data)
            if ran:
                break
        assert ran
    finally:
        sys.setswitchinterval(interval)
        thread.join()


def test_buffers_that_do_not_fit_are_refused():
    code = kintsu.parse("rs:n=5,k=3")
    good = [bytes(8)] * 3
    for data, match in [
        (good[:2], "expected k = 3 blocks, got 2"),
        ([*good[:2], bytes(9)], "length of block 2: expected 8 bytes, as block 0 has, got 9"),
        ([*good[:2], "text"], "block 2: expected contiguous bytes"),
        ([*good[:2], np.zeros(8, dtype=np.int32)], "uint8, got 1 dimension"),
        ([*good[:2], np.zeros(16, dtype=np.uint8)[::2]], "not contiguous"),
        ([*good[:2], np.zeros((2, 4), dtype=np.uint8)], "got 2 dimension"),
    ]:
        with pytest.raises(kintsu.InvalidError, match=match):
            code.encode(data)
    with pytest.raises(kintsu.InvalidError, match="a multiple of w = 2, got 7"):
        Miser().encode([bytes(7), bytes(7)])
    with pytest.raises(kintsu.InvalidError, match="block: expected 0 to 4, got 5"):
        code.decode({0: bytes(8), 1: bytes(8), 2: bytes(8)}, [5])
    with pytest.raises(kintsu.InvalidError, match="twice"):
        code.decode({0: bytes(8), 1: bytes(8), 2: bytes(8)}, [2])
