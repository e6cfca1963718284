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

TEST_P(Contract, C11HalfSumsDoNotOverflowOnTheWay) {
  run([](ProcessGroup group) {
    const double share = 65504.0 / 4;
    const torch::Tensor tensor = filled(share, {1000}, torch::kHalf);
    group.all_reduce(tensor).wait();
    expect_all(tensor, tensor[0].item<double>());
    EXPECT_NEAR(tensor[0].item<double>(), share * group.size(), 32);
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

}  // namespace
}  // namespace lockstep
