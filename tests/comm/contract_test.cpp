// One suite that every backend must pass, on 1 to 4 ranks. The ids are those of the conformance
// cases (C1, C2, ...), most of them restated from PyTorch's test_c10d_gloo.py.

#include "contract.h"

#include "tests/support/message_of.h"
#include "tests/support/places.h"

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using testing::Contract;
using testing::kNumberTypes;

INSTANTIATE_TEST_SUITE_P(Backends, Contract, ::testing::ValuesIn(testing::groups_of({1, 2, 3, 4})),
    testing::contract_name);
#ifndef LOCKSTEP_TEST_MPI
INSTANTIATE_TEST_SUITE_P(Hosts, Contract, testing::kHosts, testing::contract_name);
#endif

torch::Tensor filled(
    double value, const std::vector<std::int64_t>& shape, at::ScalarType type = torch::kFloat) {
  return torch::full(shape, value, torch::TensorOptions(type));
}

void expect_all(const torch::Tensor& tensor, double value) {
  EXPECT_TRUE(torch::all(tensor.to(torch::kDouble) == value).item<bool>())
      << "expected " << value << " everywhere, got " << tensor.flatten().slice(0, 0, 8);
}

TEST_P(Contract, C1AllReduceOfEveryOperation) {
  run([](ProcessGroup group) {
    const int size = group.size();
    double product = 1;
    for (int i = 1; i <= size; ++i) product *= i;
    for (const auto type : kNumberTypes) {
      const auto reduce = [&](ReduceOp op) {
        const torch::Tensor tensor = filled(group.rank() + 1, {3}, type);
        group.all_reduce(tensor, op).wait();
        return tensor;
      };
      expect_all(reduce(ReduceOp::kSum), size * (size + 1) / 2.0);
      expect_all(reduce(ReduceOp::kProduct), product);
      expect_all(reduce(ReduceOp::kMin), 1);
      expect_all(reduce(ReduceOp::kMax), size);
      if (c10::isFloatingType(type)) expect_all(reduce(ReduceOp::kMean), (size + 1) / 2.0);
    }
  });
}

TEST_P(Contract, C1ReduceWithEveryRootLeavesTheOthersAsTheyWere) {
  run([](ProcessGroup group) {
    const int size = group.size();
    for (int root = 0; root < size; ++root) {
      const torch::Tensor tensor = filled(group.rank() + 1, {5});
      group.reduce(tensor, root).wait();
      expect_all(tensor, group.rank() == root ? size * (size + 1) / 2.0 : group.rank() + 1);
    }
  });
}

TEST_P(Contract, C2BitwiseOperations) {
  run([](ProcessGroup group) {
    for (const auto type : {torch::kInt, torch::kLong, torch::kUInt8}) {
      std::int64_t all_or = 0, all_xor = 0;
      for (int rank = 0; rank < group.size(); ++rank) {
        all_or |= 3 * rank + 1;
        all_xor ^= 3 * rank + 1;
      }
      const auto reduce = [&](ReduceOp op) {
        const torch::Tensor tensor = filled(3 * group.rank() + 1, {7}, type);
        group.all_reduce(tensor, op).wait();
        return tensor;
      };
      expect_all(reduce(ReduceOp::kOr), static_cast<double>(all_or));
      expect_all(reduce(ReduceOp::kXor), static_cast<double>(all_xor));
      const torch::Tensor masked = filled(group.rank() | 8, {7}, type);
      group.all_reduce(masked, ReduceOp::kAnd).wait();
      expect_all(masked, group.size() == 1 ? (group.rank() | 8) : 8);
    }
  });
}

TEST_P(Contract, C3Bools) {
  run([](ProcessGroup group) {
    for (const auto op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kProduct, ReduceOp::kMin}) {
      const torch::Tensor tensor = torch::full({9}, group.rank() % 2 == 0, torch::kBool);
      group.all_reduce(tensor, op).wait();
      const bool is_or = op == ReduceOp::kSum || op == ReduceOp::kMax;
      expect_all(tensor, is_or || group.size() == 1 ? 1 : 0);  // alone, rank 0's true stays
    }
  });
}

TEST_P(Contract, C5ThousandInFlightKeepTheirOrder) {
  run([](ProcessGroup group) {
    const int size = group.size();
    std::vector<torch::Tensor> sums, casts;
    std::vector<Work> works;
    for (int i = 0; i < 1000; ++i) {
      sums.push_back(filled(i + group.rank(), {1}));
      works.push_back(group.all_reduce(sums.back()));
      casts.push_back(filled(i * size + group.rank(), {1}));
      works.push_back(group.broadcast(casts.back(), i % size));
    }
    for (Work& work : works) work.wait();
    for (int i = 0; i < 1000; ++i) {
      const int sum = i * size + size * (size - 1) / 2, cast = i * size + i % size;
      expect_all(sums[static_cast<std::size_t>(i)], sum);
      expect_all(casts[static_cast<std::size_t>(i)], cast);
    }
  });
}

TEST_P(Contract, C6AllGatherAlsoOfColumns) {
  run([](ProcessGroup group) {
    const int size = group.size();
    const torch::Tensor ranks = torch::empty({size});
    group.all_gather(ranks, filled(group.rank(), {1})).wait();
    EXPECT_TRUE(torch::equal(ranks, torch::arange(size).to(torch::kFloat)));

    const torch::Tensor square =
        testing::here(torch::tensor({{1.0, 2.0}, {3.0, 4.0}})) + group.rank();
    const torch::Tensor columns = torch::empty({size, 2});
    group.all_gather(columns, square.select(1, 1)).wait();
    for (int rank = 0; rank < size; ++rank) {
      EXPECT_TRUE(torch::equal(columns[rank].cpu(), torch::tensor({2.0, 4.0}) + rank)) << columns;
    }
  });
}

TEST_P(Contract, C6ResultsReachTensorsThatAreNotDense) {
  run([](ProcessGroup group) {
    const torch::Tensor square = torch::zeros({2, 2});
    square.select(1, 1).fill_(group.rank() + 1.0);
    group.all_reduce(square.select(1, 1)).wait();
    expect_all(square.select(1, 0), 0);
    expect_all(square.select(1, 1), group.size() * (group.size() + 1) / 2.0);
  });
}

TEST_P(Contract, C7ReduceScatter) {
  run([](ProcessGroup group) {
    const int size = group.size();
    const torch::Tensor input = torch::arange(20 * size).to(torch::kFloat).view({size, 20});
    const torch::Tensor output = torch::empty({20});
    group.reduce_scatter(output, input).wait();
    EXPECT_TRUE(torch::equal(output, input[group.rank()] * size));
    const torch::Tensor nothing = torch::empty({0});
    group.reduce_scatter(nothing, torch::empty({0})).wait();
  });
}

TEST_P(Contract, C8ScatterAndGatherWithEveryRoot) {
  run([](ProcessGroup group) {
    const int size = group.size();
    for (int root = 0; root < size; ++root) {
      const bool is_root = group.rank() == root;
      const torch::Tensor own = torch::empty({2});
      const torch::Tensor all = torch::arange(2 * size).to(torch::kFloat) + 100.0 * root;
      group.scatter(own, is_root ? all : torch::Tensor(), root).wait();
      EXPECT_TRUE(torch::equal(own, all.slice(0, 2 * group.rank(), 2 * group.rank() + 2)));
      const torch::Tensor back = is_root ? torch::empty({2 * size}) : torch::Tensor();
      group.gather(back, own, root).wait();
      if (is_root) {
        EXPECT_TRUE(torch::equal(back, all)) << back.cpu() << all.cpu() << root;
      }
    }
  });
}

TEST_P(Contract, C8SendAndReceiveBetweenAllPairs) {
  run([](ProcessGroup group) {
    const std::int64_t elements = 100'001;  // several letters, the last one short
    std::vector<Work> works;
    std::vector<torch::Tensor> received(static_cast<std::size_t>(group.size()));
    for (int peer = 0; peer < group.size(); ++peer) {
      if (peer == group.rank()) continue;
      auto& tensor = received[static_cast<std::size_t>(peer)] = torch::empty({elements});
      works.push_back(group.recv(tensor, peer));
      works.push_back(group.send(filled(10 * group.rank() + peer, {elements}), peer));
    }
    for (Work& work : works) work.wait();
    for (int peer = 0; peer < group.size(); ++peer) {
      if (peer != group.rank())
        expect_all(received[static_cast<std::size_t>(peer)], 10 * peer + group.rank());
    }
  });
}

TEST_P(Contract, AllToAll) {
  run([](ProcessGroup group) {
    const int size = group.size();
    const torch::Tensor input =
        torch::arange(3 * size).to(torch::kLong).view({size, 3}) + 1000 * group.rank();
    const torch::Tensor output = torch::empty({size, 3}, torch::kLong);
    group.all_to_all(output, input).wait();
    for (int peer = 0; peer < size; ++peer) {
      EXPECT_TRUE(torch::equal(output[peer], torch::arange(3) + 3 * group.rank() + 1000 * peer))
          << output;
    }
  });
}

TEST_P(Contract, C10BarrierComesAfterWhatWasBegun) {
  run([](ProcessGroup group) {
    std::vector<torch::Tensor> tensors;
    std::vector<Work> works;
    for (int i = 0; i < 16; ++i) {
      tensors.push_back(filled(i, {100, 100}));
      works.push_back(group.all_reduce(tensors.back()));
    }
    group.barrier().wait();
    for (Work& work : works) work.wait();
    for (int i = 0; i < 16; ++i) expect_all(tensors[static_cast<std::size_t>(i)], i * group.size());
  });
}

TEST_P(Contract, C12BadArgumentsAreRefusedBeforeAnythingIsSent) {
  run([](ProcessGroup group) {
    const torch::Tensor tensor = torch::ones({4});
    const auto refused = [](auto call, const std::string& text) {
      const std::string message = testing::message_of<InvalidArgument>(call);
      EXPECT_NE(message.find(text), std::string::npos) << message << "; expected: " << text;
    };
    refused([&] { (void)group.broadcast(tensor, -1); },
        "broadcast: root must be a rank of the group: -1");
    refused([&] { (void)group.reduce(tensor, group.size()); }, "reduce: root must be a rank");
    refused(
        [&] { (void)group.all_reduce(torch::Tensor()); }, "all_reduce: the tensor is undefined");
    refused([&] { (void)group.all_reduce(tensor, ReduceOp::kXor); },
        "bitwise operations need whole numbers");
    refused([&] { (void)group.all_reduce(tensor.to(torch::kInt), ReduceOp::kMean); },
        "the mean of whole numbers");
    refused([&] { (void)group.all_gather(torch::empty({4 * group.size() + 1}), tensor); },
        "times the elements");
    refused(
        [&] { (void)group.all_gather(torch::empty({4 * group.size()}, torch::kDouble), tensor); },
        "one type");
    refused([&] { (void)group.send(tensor, group.rank()); }, "is this rank");
    refused([&] { (void)group.all_reduce(tensor.cpu().to_sparse()); }, "must be dense");
    if (group.size() > 1) {  // meta stands for any device that is not the CPU
      const torch::Tensor elsewhere = torch::empty({4}, torch::kMeta);
      refused([&] { (void)group.all_reduce(elsewhere); }, "does not support tensors on meta");
      refused(
          [&] { (void)group.all_gather(elsewhere, tensor); }, "does not support tensors on meta");
    }
    group.barrier().wait();
  });
}

TEST_P(Contract, C16SplitMakesGroupsThatSeeOnlyTheirOwn) {
  run([](ProcessGroup group) {
    const int color = group.rank() % 2, key = -group.rank();
    const ProcessGroup part = group.split(color, key);
    int members = 0, before = 0;
    for (int rank = color; rank < group.size(); rank += 2) {
      ++members;
      before += rank > group.rank() ? 1 : 0;
    }
    EXPECT_EQ(part.size(), members);
    EXPECT_EQ(part.rank(), before);
    const torch::Tensor tensor = filled(color + 1, {10});
    part.all_reduce(tensor).wait();
    expect_all(tensor, (color + 1) * members);
    const ProcessGroup again = group.split(0, group.rank());
    EXPECT_EQ(again.rank(), group.rank());
    again.all_reduce(tensor, ReduceOp::kMin).wait();
  });
}

class ContractSizes : public Contract {};
INSTANTIATE_TEST_SUITE_P(Backends, ContractSizes,
    ::testing::ValuesIn(testing::groups_of({2, 3, 4})), testing::contract_name);
#ifndef LOCKSTEP_TEST_MPI
INSTANTIATE_TEST_SUITE_P(Hosts, ContractSizes, testing::kHosts, testing::contract_name);
#endif

// Values small enough to be exact in every type, so that one expectation serves all.
torch::Tensor pattern(std::int64_t elements, int rank, at::ScalarType type) {
  constexpr int kPeriod = 13;
  const torch::Tensor period = (torch::arange(kPeriod) * (rank + 1)).to(type);
  const torch::Tensor periods = period.expand({elements / kPeriod + 1, kPeriod}).reshape(-1);
  return periods.narrow(0, 0, elements).clone();
}

TEST_P(ContractSizes, AllTypesAndSizesInOrdinaryAndSharedMemory) {
  run([](ProcessGroup group) {
    const int ranks = group.size() * (group.size() + 1) / 2;
    for (const auto type : kNumberTypes) {
      for (const std::int64_t elements : {0, 1, 63, 64, 65, 4097, 1'000'003}) {
        if (testing::shows_nothing_more(elements)) continue;
        const torch::Tensor expected = pattern(elements, ranks - 1, type);
        const torch::Tensor ordinary = pattern(elements, group.rank(), type);
        group.all_reduce(ordinary).wait();
        EXPECT_TRUE(torch::equal(ordinary, expected)) << type << " " << elements;
        if (elements > 4097 && type != torch::kFloat && type != torch::kBFloat16) continue;
        const torch::Tensor shared = group.empty(elements, torch::TensorOptions(type));
        shared.copy_(pattern(elements, group.rank(), type));
        group.all_reduce(shared).wait();
        EXPECT_TRUE(torch::equal(shared, expected))
            << type << " " << elements << " in shared memory";
      }
    }
  });
}

TEST_P(ContractSizes, TenMillionOfEveryKind) {
  run([](ProcessGroup group) {
    const std::int64_t elements = 10'000'000;
    const int size = group.size();
    const torch::Tensor sum = pattern(elements, group.rank(), torch::kFloat);
    group.all_reduce(sum).wait();
    EXPECT_TRUE(torch::equal(sum, pattern(elements, size * (size + 1) / 2 - 1, torch::kFloat)));
    const torch::Tensor cast = pattern(elements, group.rank(), torch::kFloat);
    group.broadcast(cast, size - 1).wait();
    EXPECT_TRUE(torch::equal(cast, pattern(elements, size - 1, torch::kFloat)));
    const torch::Tensor piece = torch::empty({elements / size}, torch::kUInt8);
    const torch::Tensor whole = pattern(elements / size * size, 0, torch::kUInt8);
    group.reduce_scatter(piece, whole).wait();
    EXPECT_TRUE(torch::equal(piece, whole.view({size, -1})[group.rank()] * size));
    const torch::Tensor all = torch::empty({size, elements / size}, torch::kUInt8);
    group.all_gather(all, piece).wait();
    EXPECT_TRUE(torch::equal(all, whole.view({size, -1}) * size));
  });
}

torch::Tensor shared_copy(const ProcessGroup& group, const torch::Tensor& values) {
  const torch::Tensor shared = group.empty(values.numel(), values.options());
  return shared.copy_(values);
}

// From 128 KB on the root of a broadcast writes too; the largest results go past the caches. Odd
// numbers, so that pieces begin anywhere in a cache line.
TEST_P(ContractSizes, EveryKindInSharedMemory) {
  run([](ProcessGroup group) {
    const int size = group.size(), rank = group.rank();
    for (const std::int64_t elements : {1, 4097, 50'003, 1'500'007, 5'000'011}) {
      if (testing::shows_nothing_more(elements)) continue;
      const auto numbers = [&](int seed) { return pattern(elements, seed, torch::kFloat); };
      for (const int root : {0, size - 1}) {
        const torch::Tensor cast = shared_copy(group, numbers(rank));
        group.broadcast(cast, root).wait();
        EXPECT_TRUE(torch::equal(cast, numbers(root))) << elements << ", root " << root;
      }
      std::vector<torch::Tensor> of_ranks, to_ranks, arrived;
      for (int other = 0; other < size; ++other) {
        of_ranks.push_back(numbers(other));
        to_ranks.push_back(numbers(10 * rank + other));
        arrived.push_back(numbers(10 * other + rank));
      }
      const torch::Tensor piece = shared_copy(group, numbers(rank));
      const torch::Tensor whole = shared_copy(group, torch::zeros({elements * size}));
      group.all_gather(whole, piece).wait();
      EXPECT_TRUE(torch::equal(whole, torch::cat(of_ranks))) << elements;
      const torch::Tensor sent = shared_copy(group, torch::cat(to_ranks));
      group.all_to_all(whole, sent).wait();
      EXPECT_TRUE(torch::equal(whole, torch::cat(arrived))) << elements;
      group.reduce_scatter(piece, sent).wait();
      EXPECT_TRUE(torch::equal(piece, torch::stack(arrived).sum(0))) << elements;
    }
  });
}

// Who receives elsewhere than in the root's memory reads all of it, be it in memory that the root
// has released.
TEST_P(ContractSizes, MixedMemoryIsBroadcastToo) {
  run([](ProcessGroup group) {
    const std::int64_t elements = 100'003;
    const bool is_root = group.rank() == 1;
    const torch::Tensor shared = group.empty(elements, torch::kFloat);
    const torch::Tensor ordinary = torch::empty({elements});
    torch::Tensor released = group.empty(elements, torch::kFloat);
    if (is_root) released = ordinary;
    for (const torch::Tensor& from : {shared, ordinary}) {
      for (const torch::Tensor& to : {shared, ordinary, released}) {
        const torch::Tensor& tensor = is_root ? from : to;
        tensor.copy_(pattern(elements, group.rank(), torch::kFloat));
        group.broadcast(tensor, 1).wait();
        EXPECT_TRUE(torch::equal(tensor, pattern(elements, 1, torch::kFloat)));
      }
    }
  });
}

TEST_P(ContractSizes, MixedMemoryIsReducedToo) {
  run([](ProcessGroup group) {
    const torch::Tensor shared = group.empty(1'000'003, torch::kFloat);
    const torch::Tensor ordinary = torch::empty({1'000'003});
    const torch::Tensor& tensor = group.rank() == 0 ? shared : ordinary;
    tensor.copy_(pattern(1'000'003, group.rank(), torch::kFloat));
    group.all_reduce(tensor).wait();
    EXPECT_TRUE(torch::equal(
        tensor, pattern(1'000'003, group.size() * (group.size() + 1) / 2 - 1, torch::kFloat)));
  });
}

// The order of a sum decides its last bits: all ranks must hold the same ones, and the same each
// time. Gloo promises no rank order and is not asked.
class ContractOrder : public Contract {};
#ifdef LOCKSTEP_TEST_MPI
INSTANTIATE_TEST_SUITE_P(Backends, ContractOrder,
    ::testing::ValuesIn(testing::groups_of({2, 3, 4})), testing::contract_name);
#else
INSTANTIATE_TEST_SUITE_P(Backends, ContractOrder,
    ::testing::Combine(::testing::Values("threads", "shm"), ::testing::Values(2, 3, 4)),
    testing::contract_name);
INSTANTIATE_TEST_SUITE_P(Hosts, ContractOrder, testing::kHosts, testing::contract_name);
#endif

TEST_P(ContractOrder, SumsAreTheSameBitForBitOnAllRanksAndEachTime) {
  run([](ProcessGroup group) {
    for (const auto type : {torch::kFloat, torch::kBFloat16, torch::kHalf}) {
      const auto reduce = [&] {
        const torch::Tensor steps = torch::arange(10'007).to(torch::kFloat) * (1.7 + group.rank());
        const torch::Tensor tensor = torch::sin(steps).to(type);
        group.all_reduce(tensor).wait();
        return tensor;
      };
      const torch::Tensor first = reduce(), second = reduce();
      EXPECT_TRUE(torch::equal(first, second));
      const torch::Tensor all = torch::empty({group.size(), 10'007}, torch::TensorOptions(type));
      group.all_gather(all, first).wait();
      for (int rank = 1; rank < group.size(); ++rank) EXPECT_TRUE(torch::equal(all[rank], all[0]));
    }
  });
}

}  // namespace
}  // namespace lockstep
