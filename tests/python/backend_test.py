#!/usr/bin/env python3
"""Tests the backend "lockstep" of torch.distributed.

    PYTHONPATH=build/release/python tests/python/backend_test.py [REGEX of names]

A test is a function of rank and world size, of the ranks that its decorator says, on one host or on several. All run in the same
processes, each in a world of its own, so that torch is imported once. The last ones kill a rank. Hosts differ only in what ranks are told.
"""

import os
import signal
import sys
import threading
import time
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import lockstep.distributed  # noqa: F401
import processes

LIMIT = timedelta(seconds=300)
PROCESSES = 4
ONE_HOST = ""
TESTS = []


def ranks(size, *hosts):
    """A test of so many ranks, once for each division into hosts, which has a character a rank: "001" puts rank 2 alone."""

    def add(test):
        for layout in hosts or (ONE_HOST,):
            name = f"{test.__name__}_on_{layout}" if layout else test.__name__
            TESTS.append((name, test, size, layout))
        return test

    return add


def run_rank(rank, names, folder):
    torch.set_num_threads(1)
    for name, test, size, hosts in TESTS:
        if name not in names or rank >= size:
            continue
        os.environ["LOCKSTEP_TEST_HOST"] = hosts[rank : rank + 1]
        try:
            dist.init_process_group("lockstep", init_method=f"file://{folder}/{name}", rank=rank, world_size=size, timeout=LIMIT)
            test(rank, size)
            if rank == 0:
                print("ok  ", name, flush=True)
        except BaseException:
            with open(f"{folder}/failures-{rank}", "a") as failures:
                print(f"{name}, rank {rank}: {traceback.format_exc()}", file=failures)
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()


def same(got, expected):
    torch.testing.assert_close(got, expected, rtol=0, atol=0)


def message_of(error, call):
    """Returns the text of the error that the call must raise."""
    try:
        call()
    except error as raised:
        return str(raised)
    raise AssertionError(f"{error.__name__} was not raised")


@ranks(3, ONE_HOST, "011", "012")
def test_every_type(rank, size):
    types = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
    for dtype in types:
        for elements in (1, 1000, 300_000):
            tensor = torch.full((elements,), rank + 1, dtype=dtype)
            dist.all_reduce(tensor)
            same(tensor, torch.full((elements,), 6, dtype=dtype))
            dist.all_reduce(tensor, dist.ReduceOp.MAX)
            dist.all_reduce(tensor.fill_(rank + 1), dist.ReduceOp.PRODUCT)
            same(tensor, torch.full((elements,), 6, dtype=dtype))
    mean = torch.tensor([float(rank)])
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    same(mean, torch.tensor([1.0]))
    bits = torch.tensor([1 << rank])
    dist.all_reduce(bits, dist.ReduceOp.BOR)
    same(bits, torch.tensor([7]))
    number = torch.tensor([1 + 2j]) * (rank + 1)
    dist.all_reduce(number)
    same(number, torch.tensor([6 + 12j]))
    dist.broadcast(number.fill_(rank * 1j), 2)
    same(number, torch.tensor([2j]))
    dist.all_reduce(number, dist.ReduceOp.AVG)
    options = dist.AllreduceOptions()
    for options.reduceOp in (dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.BAND):
        text = message_of(ValueError, lambda: dist.group.WORLD.allreduce([number], options).wait())
        assert "by SUM and AVG alone" in text, text
    same(number, torch.tensor([2j]))


@ranks(3, ONE_HOST, "001", "012")
def test_lists_and_parts(rank, size):
    whole = torch.empty(size, 2)
    dist.all_gather_into_tensor(whole, torch.full((1, 2), float(rank)))
    same(whole, torch.tensor([[0.0, 0], [1, 1], [2, 2]]))
    apart = [torch.empty(2) for _ in range(size)]
    dist.all_gather(apart, torch.full((2,), float(rank)))
    same(torch.stack(apart), whole)
    dist.gather(torch.full((2,), float(rank)), apart if rank == 1 else None, dst=1)
    piece = torch.empty(2)
    dist.scatter(piece, list(whole) if rank == 1 else None, src=1)
    same(piece, whole[rank])
    dist.reduce_scatter_tensor(piece, whole.flatten())
    same(piece, 3 * whole[rank])
    dist.reduce_scatter(piece, list(whole.clone()))
    same(piece, 3 * whole[rank])
    total = torch.tensor([rank + 1])
    dist.reduce(total, 1)
    same(total, torch.tensor([6 if rank == 1 else rank + 1]))
    out = torch.empty(size)
    dist.all_to_all_single(out, torch.arange(size) + 10.0 * rank)
    same(out, torch.tensor([0.0, 10, 20]) + rank)
    # Rank r gives r + 1 rows to each.
    rows = torch.empty(6, 2)
    dist.all_to_all_single(rows, torch.full((size * (rank + 1), 2), float(rank)), [1, 2, 3], [rank + 1] * size)
    same(rows[:, 0], torch.tensor([0.0, 1, 1, 2, 2, 2]))
    gotten = [torch.empty(other + 1) for other in range(size)]
    dist.all_to_all(gotten, [torch.full((rank + 1,), float(rank))] * size)
    same(torch.cat(gotten), rows[:, 0].contiguous())
    gotten = [torch.empty(other + 1, dtype=torch.complex64) for other in range(size)]
    dist.group.WORLD.alltoall(gotten, [torch.full((rank + 1,), rank + 1j).conj()] * size).wait()
    same(torch.cat(gotten), rows[:, 0] - 1j)
    with dist._coalescing_manager(async_ops=True) as manager:
        sums = [torch.full((3,), float(rank)), torch.full((5,), 1.0)]
        for tensor in sums:
            dist.all_reduce(tensor)
    manager.wait()
    same(torch.cat(sums), torch.full((8,), 3.0))


@ranks(3, ONE_HOST, "001")
def test_parts_that_do_not_match_are_refused(rank, size):
    given = [1, 1, 3] if rank == 0 else [1, 1, 1]
    text = message_of(ValueError, lambda: dist.all_to_all_single(torch.empty(3), torch.ones(sum(given)), [1, 1, 1], given))
    assert "rank 0 gives rank 2 3 elements, but rank 2 takes 1 from it" in text, text
    types = [torch.ones(1), torch.ones(1), torch.ones(1, dtype=torch.int32)]
    assert "of one type: Int and Float" in message_of(ValueError, lambda: dist.group.WORLD.alltoall([torch.empty(1)] * 3, types).wait())
    dist.barrier()


@ranks(2, ONE_HOST, "01")
def test_layouts(rank, size):
    base = torch.zeros(4, 6)
    view = base.t()[1::2].fill_(rank + 1.0)
    dist.all_reduce(view)
    same(view, torch.full((3, 4), 3.0))
    same(base[:, 0].contiguous(), torch.zeros(4))
    dist.all_reduce(torch.empty(0))
    leaf = torch.nn.Parameter(torch.ones(2))
    dist.all_reduce(leaf)
    same(leaf.data, torch.full((2,), 2.0))
    negative = [torch._neg_view(torch.zeros(2)) for _ in range(size)]
    dist.all_gather(negative, torch.full((2,), rank + 1.0))
    same(torch.cat(negative), torch.tensor([1.0, 1, 2, 2]))
    together = torch._neg_view(torch.zeros(4))
    dist.all_gather(list(together.split(2)), torch.full((2,), rank + 1.0))
    same(together, torch.tensor([1.0, 1, 2, 2]))


def sparse(indices, values, dtype, shape=(5, 2)):
    """Returns a tensor of rows that are filled with these values, some of them twice."""
    rows = torch.tensor(values, dtype=dtype).reshape(-1, 1).expand(-1, 2).contiguous()
    return torch.sparse_coo_tensor(torch.tensor([indices], dtype=torch.long), rows, shape)


@ranks(3)
def test_sparse_sums(rank, size):
    given = [([0, 3, 3], [1, 2, 4]), ([], []), ([3, 4], [8, 16])]
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        tensor = sparse(*given[rank], dtype)
        dist.all_reduce(tensor)
        expected = torch.tensor([1, 0, 0, 14, 16], dtype=dtype)[:, None].expand(5, 2)
        same(tensor.to_dense(), expected.contiguous())
    nothing = sparse([], [], torch.float32)
    dist.all_reduce(nothing)
    assert nothing._nnz() == 0
    tensor = sparse(*given[rank], torch.float32)
    assert "by SUM alone" in message_of(ValueError, lambda: dist.all_reduce(tensor, dist.ReduceOp.MAX))
    text = message_of(ValueError, lambda: dist.all_reduce(sparse([0], [1], torch.float32, (5 + rank, 2))))
    assert "one shape on all ranks" in text, text
    large = torch.full((5, 2), [256, 1, 1][rank], dtype=torch.bfloat16).to_sparse(1)  # in 16 bits 256 + 1 is 256
    dist.all_reduce(large)
    same(large.to_dense(), torch.full((5, 2), 258, dtype=torch.bfloat16))


@ranks(2, ONE_HOST, "01")
def test_futures(rank, size):
    tensor = torch.full((100_000,), rank + 1.0)
    work = dist.all_reduce(tensor, async_op=True)
    doubled = work.get_future().then(lambda future: future.value()[0] * 2)
    same(doubled.wait(), torch.full((100_000,), 6.0))
    work.wait()
    assert work.is_completed() and work.is_success()
    outputs = [torch.empty(2), torch.empty(2)]
    work = dist.all_gather(outputs, torch.full((2,), float(rank)), async_op=True)
    assert [part.data_ptr() for part in work.get_future().wait()] == [output.data_ptr() for output in outputs]


@ranks(2, ONE_HOST, "01")
def test_order_of_asynchronous_calls(rank, size):
    tensor = torch.ones(50_000)
    works = [dist.all_reduce(tensor, async_op=True) for _ in range(10)]
    other = torch.ones(3)
    dist.all_reduce(other)  # after the ten
    same(tensor, torch.full((50_000,), 1024.0))
    for work in works:
        work.wait()


@ranks(2, ONE_HOST, "01")
def test_a_callback_calls_its_group(rank, size):
    tensor = torch.ones(100_000)

    def again(future):
        dist.all_reduce(future.value()[0])
        return dist.all_reduce(future.value()[0], async_op=True).get_future().wait()

    dist.all_reduce(tensor, async_op=True).get_future().then(again).wait()
    same(tensor, torch.full((100_000,), 8.0))


@ranks(2)
def test_a_group_ends_in_its_callback(rank, size):
    groups = [dist.new_group([0, 1])]

    def close(future):
        dist.destroy_process_group(groups.pop())

    if rank == 1:
        dist.barrier()  # what comes now is not done before the other has its callback
    work = dist.all_reduce(torch.ones(10), group=groups[0], async_op=True)
    closed = work.get_future().then(close)
    if rank == 0:
        dist.barrier()
    closed.wait()
    dist.barrier()


@ranks(2)
def test_a_clean_end_aborts_nobody(rank, size):
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})  # threads are interrupted at any place
    for _ in range(50):
        group = dist.new_group([0, 1])
        outputs = [torch.empty(100_000) for _ in range(size)]
        dist.all_gather(outputs, torch.full((100_000,), float(rank)), group=group, async_op=True).wait()
        dist.destroy_process_group(group)
        del group
        same(torch.stack(outputs), torch.arange(2.0)[:, None].expand(2, 100_000))
    os.sched_setaffinity(0, cores)


@ranks(2)
def test_the_limit_of_a_collective_is_its_own(rank, size):
    options = dist.AllreduceOptions()
    options.timeout = timedelta(seconds=2)
    number = torch.zeros(1)
    other = dist.new_group([0, 1])
    before = dist.irecv(number, 1, tag=1) if rank == 0 else None
    dist.barrier()
    dist.group.WORLD.allreduce([torch.ones(1)], options).wait()
    if rank == 0:
        before.wait()
        dist.recv(number, 1, tag=2)
        text = message_of(dist.DistBackendError, lambda: other.allreduce([number], options).wait())
        assert "waited 2000 ms for rank 1" in text, text
    else:
        for tag in (1, 2):
            time.sleep(2.5)
            dist.send(torch.ones(1), 0, tag=tag)
    dist.barrier()


@ranks(2)
def test_who_asks_does_not_wait_for_who_waits(rank, size):
    group = dist.new_group([0, 1], timeout=timedelta(seconds=20))
    if rank == 0:
        number = torch.zeros(1)
        work = dist.irecv(number, 1, group=group)
        waiter = threading.Thread(target=work.wait)
        waiter.start()
        for _ in range(20):
            assert not work.is_completed()
            time.sleep(0.01)
        dist.barrier()  # only now the other sends
        waiter.join()
        assert work.is_completed() and work.is_success()
        same(number, torch.ones(1))
    else:
        dist.barrier()
        dist.send(torch.ones(1), 0, group=group)


@ranks(3, ONE_HOST, "001", "012")
def test_messages(rank, size):
    if rank > 0:
        sent = [dist.isend(torch.full((100_000,), float(rank)), 0, tag=1)]
        dist.send(torch.full((3,), float(rank)), 0, tag=2)
        sent[0].wait()
    else:
        short, long = torch.empty(3), torch.empty(100_000)
        for sender in (2, 1):
            dist.recv(short, sender, tag=2)
            same(short, torch.full((3,), float(sender)))
            dist.recv(long, sender, tag=1)
            same(long, torch.full((100_000,), float(sender)))
    inbox = torch.empty(1000)
    # All at once in a ring, from a thread that waits for nothing meanwhile.
    works = [dist.isend(torch.full((1000,), float(rank)), (rank + 1) % size), dist.irecv(inbox, (rank - 1) % size)]
    deadline = time.monotonic() + 30
    while not works[1].is_completed() and time.monotonic() < deadline:
        time.sleep(0.001)
    works[1].wait()
    works[0].wait()
    same(inbox, torch.full((1000,), float((rank - 1) % size)))


@ranks(3)
def test_messages_of_any_rank(rank, size):
    if rank > 0:
        return dist.send(torch.full((2,), float(rank)), 0, tag=3)
    senders, inbox = set(), torch.empty(2)
    for _ in range(2):
        sender = dist.recv(inbox, tag=3)
        same(inbox, torch.full((2,), float(sender)))
        senders.add(sender)
    assert senders == {1, 2}


@ranks(3, "001")
def test_any_rank_is_refused(rank, size):
    assert "recv: from must be a rank of the group" in message_of(ValueError, lambda: dist.recv(torch.empty(1)))
    dist.barrier()


@ranks(3, ONE_HOST, "001")
def test_groups(rank, size):
    pair = dist.new_group([0, 2])
    if rank != 1:
        tensor = torch.tensor([rank + 1.0])
        dist.all_reduce(tensor, group=pair)
        same(tensor, torch.tensor([4.0]))
    half = dist.split_group(split_ranks=[[0, 2], [1]])
    tensor = torch.tensor([rank + 1.0])
    dist.all_reduce(tensor, group=half)
    same(tensor, torch.tensor([2.0 if rank == 1 else 4.0]))
    for _ in range(3):  # made and closed at the same place of the store
        again = dist.new_group([0, 1, 2], use_local_synchronization=True)
        tensor = torch.tensor([5.0])
        dist.all_reduce(tensor, group=again)
        same(tensor, torch.tensor([15.0]))
        dist.destroy_process_group(again)
    both = [dist.new_group(list(range(size))) for _ in range(2)]
    tensors = [torch.full((100_000,), 1.0), torch.full((100_000,), 2.0)]
    order = (0, 1) if rank == 0 else (1, 0)  # groups go on without each other
    works = [dist.all_reduce(tensors[i], group=both[i], async_op=True) for i in order]
    for work in works:
        work.wait()
    same(tensors[0], torch.full((100_000,), 3.0))
    same(tensors[1], torch.full((100_000,), 6.0))


@ranks(2, ONE_HOST, "01")
def test_groups_in_threads(rank, size):
    groups = [dist.new_group([0, 1]) for _ in range(3)]

    def many(group, failures):
        try:
            for turn in range(100):
                tensor = torch.full((turn * 100 + 1,), float(turn))
                dist.all_reduce(tensor, group=group)
                same(tensor, torch.full((turn * 100 + 1,), 2.0 * turn))
        except BaseException as failure:
            failures.append(failure)

    failures = []
    threads = [threading.Thread(target=many, args=(group, failures)) for group in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


@ranks(2, ONE_HOST, "01")
def test_objects(rank, size):
    gathered = [None] * size
    dist.all_gather_object(gathered, {"rank": rank})
    assert gathered == [{"rank": 0}, {"rank": 1}]
    objects = [("from", rank)]
    dist.broadcast_object_list(objects, src=1)
    assert objects == [("from", 1)]


@ranks(3, ONE_HOST, "001")
def test_allocated_tensors(rank, size):
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert backend.supports_tensor_alloc(torch.device("cpu"))
    for turn in range(20):
        own = backend.allocate_tensor(50_000 + turn + 5000 * rank, dtype=torch.float32, device=torch.device("cpu"))[:50_000]
        own.fill_(rank + turn)
        dist.all_reduce(own)
        same(own, torch.full((50_000,), 3.0 + 3 * turn))
        plain = torch.full((50_000,), float(rank)) if rank == 0 else own.fill_(rank)  # some in place, some not
        dist.all_reduce(plain)
        same(plain, torch.full((50_000,), 3.0))
    other = dist.new_group([0, 1, 2])  # sees memory that came from another group
    dist.broadcast(own.fill_(rank), 1, group=other)
    same(own, torch.full((50_000,), 1.0))


@ranks(2)
def test_a_late_rank_is_named(rank, size):
    group = dist.new_group([0, 1], timeout=timedelta(seconds=1), group_desc="short")
    dist.barrier(group=group)
    if rank == 0:
        text = message_of(dist.DistBackendError, lambda: dist.all_reduce(torch.ones(4, 5), group=group))
        for part in ("all_reduce #2", "Float[4, 5]", "rank 0", "within the timeout (", "waited 1000 ms for rank 1", f"group {group.group_name}"):
            assert part in text, f"{part} is not in: {text}"
        assert "frame #" not in text, text
    dist.barrier()


@ranks(4, "0011")
def test_a_late_rank_of_another_host(rank, size):
    group = dist.new_group(list(range(size)), timeout=timedelta(seconds=2))
    dist.barrier(group=group)
    if rank < 3:
        text = message_of(dist.DistBackendError, lambda: dist.all_reduce(torch.ones(4, 5), group=group))
        assert f"rank {rank}, lockstep:all_reduce #2 of Float[4, 5]" in text, text
        if rank == 2:
            assert "within the timeout (" in text and "on rank 2: waited 2000 ms for rank 3" in text, text
    dist.barrier()


@ranks(2)
def test_unlike_calls_are_refused(rank, size):
    text = message_of(ValueError if rank == 0 else (ValueError, dist.DistBackendError), lambda: dist.all_reduce(torch.ones(4 + rank)))
    assert "all_reduce of 4 Float elements" in text and "all_reduce of 5 Float elements" in text, text


@ranks(2)
def test_abort_reaches_all(rank, size):
    if rank == 1:
        dist.group.WORLD._get_backend(torch.device("cpu")).abort()
    text = message_of(dist.DistBackendError, lambda: (dist.barrier(), dist.barrier()))
    assert "rank 1 has aborted the group" in text, text


@ranks(4, "0011")
def test_abort_reaches_all_hosts(rank, size):
    if rank == 3:
        dist.group.WORLD._get_backend(torch.device("cpu")).abort()
    text = message_of(dist.DistBackendError, dist.barrier)
    if rank >= 2:
        assert "rank 3 has aborted the group" in text, text


@ranks(2)
def test_a_closed_group(rank, size):
    group = dist.new_group([0, 1])
    if rank == 1:
        dist.destroy_process_group(group)
        del group
        return dist.barrier()
    text = message_of(dist.DistBackendError, lambda: dist.barrier(group=group))
    assert "rank 1 has left the group" in text, text
    dist.barrier()


def threads_of_this_process():
    return set(os.listdir("/proc/self/task"))


def memory_files():
    links = [os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if os.path.islink(f"/proc/self/fd/{name}")]
    return sorted(link for link in links if "memfd:lockstep" in link)


@ranks(2)
def test_nothing_is_left(rank, size):
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    tensor = backend.allocate_tensor(10_000, dtype=torch.float32, device=torch.device("cpu"))
    dist.all_reduce(tensor.fill_(1))
    assert memory_files() == [link for link in memory_files() if "lockstep-own" in link]
    names = set(os.listdir("/dev/shm"))
    assert not [name for name in names if "lockstep" in name]
    before = threads_of_this_process()  # among them may be one that asked the store, and is about to end
    message = dist.isend(tensor, 1) if rank == 0 else dist.irecv(tensor, 0)
    dist.all_reduce(tensor, async_op=True).wait()
    message.wait()
    started = threads_of_this_process() - before
    assert len(started) == 2, started  # of collectives and of messages
    del backend, message
    dist.destroy_process_group()
    deadline = time.monotonic() + 30
    while threads_of_this_process() - before and time.monotonic() < deadline:
        time.sleep(0.001)
    assert not threads_of_this_process() - before
    maps = open("/proc/self/maps").read()
    assert not [line for line in maps.splitlines() if "memfd:lockstep" in line and "lockstep-own" not in line], maps


def trained(model, steps=3):
    """Trains a model on this rank's inputs, and returns its parameters."""
    torch.manual_seed(10 + dist.get_rank())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        model(torch.randn(8, 20)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return list(model.parameters())


def seeded_model():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(20, 300), torch.nn.ReLU(), torch.nn.Linear(300, 20))


@ranks(2, ONE_HOST, "01")
def test_ddp(rank, size):
    gloo = dist.new_group([0, 1], backend="gloo")
    expected = trained(DistributedDataParallel(seeded_model(), process_group=gloo))
    for got, wanted in zip(trained(DistributedDataParallel(seeded_model())), expected):
        same(got, wanted)  # of two ranks each order of adding gives the same bits


@ranks(4, "0011", "0001")
def test_ddp_on_hosts_of_several_ranks(rank, size):
    gloo = dist.new_group(list(range(size)), backend="gloo")
    expected = trained(DistributedDataParallel(seeded_model(), process_group=gloo), steps=2)
    for got, wanted in zip(trained(DistributedDataParallel(seeded_model()), steps=2), expected):
        torch.testing.assert_close(got, wanted)
        everyones = [torch.empty_like(got) for _ in range(size)]
        dist.all_gather(everyones, got.detach())
        for other in everyones:
            same(other, got.detach())


@ranks(2, ONE_HOST, "01")
def test_fsdp(rank, size):
    expected = trained(DistributedDataParallel(seeded_model()))
    model = seeded_model()
    mesh = dist.device_mesh.init_device_mesh("cpu", (size,))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
        layer.set_allocate_memory_from_process_group_for_comm(True)
    for got, wanted in zip(trained(model), expected):
        torch.testing.assert_close(got.full_tensor(), wanted.detach())


@ranks(4, "0011")
def test_a_killed_rank_ends_the_calls_of_all_hosts(rank, size):
    dist.barrier()
    if rank == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    text = message_of(dist.DistBackendError, lambda: dist.all_reduce(torch.ones(10)))
    assert "within the timeout" not in text, text
    if rank == 2:
        assert "rank 3 (process " in text and "has ended" in text, text


@ranks(2)
def test_a_killed_rank_is_named_at_once(rank, size):
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    work = dist.all_reduce(torch.ones(10), async_op=True)
    text = message_of(dist.DistBackendError, work.wait)
    assert "has ended" in text and "rank 1" in text, text
    assert "has ended" in message_of(RuntimeError, work.get_future().wait)


KILLED = {TESTS[-2][0]: 3, TESTS[-1][0]: 1}  # which rank


def main():
    pattern = sys.argv[1] if len(sys.argv) > 1 else ""
    names = processes.names_of([name for name, *_ in TESTS], pattern)
    codes, failures = processes.run(run_rank, names, PROCESSES)
    ended = [0] * PROCESSES
    for name in KILLED.keys() & set(names):
        ended[KILLED[name]] = -signal.SIGKILL
    if codes != ended:
        print(f"the processes ended with {codes}, not {ended}")
    print(failures, end="")
    return bool(failures) or codes != ended


if __name__ == "__main__":
    sys.exit(main())
