// The contract's collectives over element types and sizes, in ordinary and in shared memory.

#include "contract.h"

namespace lockstep {
namespace {

using testing::Contract;
using testing::kNumberTypes;

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
