// How collectives are cut into rounds, and what ranks may rely on between them; see Note [Rounds].

#include <gtest/gtest.h>
#include <vector>

#include "contract.h"
#include "tests/support/message_of.h"

#include "lockstep/comm/host/collective.h"
#include "lockstep/comm/host_backends.h"
#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using host::Cut;

TEST(Cut, RoundsCoverTheTensorAndFitTheStagingBuffer) {
  for (const auto type : {torch::kByte, torch::kFloat, torch::kDouble}) {
    for (const int pieces : {1, 2, 3, 7, 64}) {
      for (const std::int64_t elements : {0, 1, 64, 5000, 65'536, 1'000'003}) {
        const Cut cut = host::cut_for_staging({.kind = host::Kind::kAllToAll,
            .element = type,
            .elements = elements,
            .pieces = pieces});
        std::int64_t next = 0;
        for (std::int64_t round = 0; round < cut.rounds(); ++round) {
          const host::Chunk chunk = cut.chunk(round);
          EXPECT_EQ(chunk.begin, next);
          EXPECT_LE(static_cast<std::size_t>(chunk.count * pieces) * c10::elementSize(type),
              host::SharedRegion::kStagingBytes);
          next += chunk.count;
        }
        EXPECT_EQ(next, elements);
      }
    }
  }
}

class Rounds : public testing::Contract {};
INSTANTIATE_TEST_SUITE_P(Backends, Rounds,
    ::testing::Combine(::testing::Values("threads", "shm"), ::testing::Values(2, 3, 4)),
    testing::contract_name);

/// Begins a collective and can tell whether it came out right.
struct Begun {
  Work work;
  torch::Tensor result, expected;
};

torch::Tensor numbers(std::int64_t elements, int seed) {
  return (torch::arange(elements) % 251 + seed).to(torch::kFloat);
}

torch::Tensor sum_over_ranks(std::int64_t elements, int seed, int size) {
  torch::Tensor sum = numbers(elements, seed);
  for (int rank = 1; rank < size; ++rank) sum += numbers(elements, seed + rank);
  return sum;
}

Begun begin_all_reduce(const ProcessGroup& group, const torch::Tensor& tensor, int seed) {
  tensor.copy_(numbers(tensor.numel(), seed + group.rank()));
  return {group.all_reduce(tensor), tensor, sum_over_ranks(tensor.numel(), seed, group.size())};
}

Begun begin_all_to_all(const ProcessGroup& group, std::int64_t piece, int seed) {
  const int size = group.size(), rank = group.rank();
  std::vector<torch::Tensor> expected;
  for (int from = 0; from < size; ++from)
    expected.push_back(
        numbers(piece * size, seed + from).slice(0, rank * piece, (rank + 1) * piece));
  const torch::Tensor output = torch::empty({piece * size});
  return {
      group.all_to_all(output, numbers(piece * size, seed + rank)), output, torch::cat(expected)};
}

Begun begin_reduce_scatter(const ProcessGroup& group, std::int64_t piece, int seed) {
  const int size = group.size(), rank = group.rank();
  const torch::Tensor output = torch::empty({piece});
  return {group.reduce_scatter(output, numbers(piece * size, seed + rank)), output,
      sum_over_ranks(piece * size, seed, size).slice(0, rank * piece, (rank + 1) * piece)};
}

Begun begin_all_gather(const ProcessGroup& group, std::int64_t piece, int seed) {
  std::vector<torch::Tensor> expected;
  for (int from = 0; from < group.size(); ++from) expected.push_back(numbers(piece, seed + from));
  const torch::Tensor output = torch::empty({piece * group.size()});
  return {
      group.all_gather(output, numbers(piece, seed + group.rank())), output, torch::cat(expected)};
}

Begun begin_broadcast(const ProcessGroup& group, std::int64_t elements, int seed) {
  const int root = seed % group.size();
  const torch::Tensor tensor = numbers(elements, seed + group.rank());
  return {group.broadcast(tensor, root), tensor, numbers(elements, seed + root)};
}

// Small ones, which end at once, staged ones of several rounds and ones in place, all begun before
// any is waited for: a buffer that is filled too early shows in the one before.
TEST_P(Rounds, BuffersAreNotUsedAgainBeforeAllHaveReadThem) {
  run([](ProcessGroup group) {
    const torch::Tensor shared = group.empty(200'000, torch::kFloat);
    for (int turn = 0; turn < 6; ++turn) {
      std::vector<Begun> all;
      all.push_back(begin_all_reduce(group, shared, 100 * turn));
      for (const std::int64_t elements : {3, 700, 30'000, 300'007}) {
        const int seed = 100 * turn + static_cast<int>(elements % 97);
        all.push_back(begin_all_reduce(group, torch::empty({elements}), seed));
        all.push_back(begin_broadcast(group, elements, seed + 1));
        all.push_back(begin_all_to_all(group, elements, seed + 2));
        all.push_back(begin_reduce_scatter(group, elements, seed + 3));
        all.push_back(begin_all_gather(group, elements, seed + 4));
      }
      for (Begun& begun : all) begun.work.wait();
      for (std::size_t i = 0; i < all.size(); ++i)
        EXPECT_TRUE(torch::equal(all[i].result, all[i].expected)) << "turn " << turn << ", #" << i;
    }
  });
}

/// Two ranks in one thread, so that a test decides who gets how far.
struct Pair {
  std::shared_ptr<host::SharedRegion> region = ThreadBackend::make_region(2);
  ThreadBackend first{region, 0}, second{region, 1};
  torch::Tensor small[2] = {torch::full({4}, 1.0F), torch::full({4}, 2.0F)};

  Pair() {
    first.set_timeout(std::chrono::milliseconds(200));
    second.set_timeout(std::chrono::milliseconds(200));
  }
};

TEST(OneWait, ASmallCollectiveEndsWithoutWaitingForTheOthersToFinish) {
  Pair pair;
  Work begun = pair.second.all_reduce(pair.small[1], ReduceOp::kSum);
  pair.first.all_reduce(pair.small[0], ReduceOp::kSum).wait();
  EXPECT_TRUE(torch::all(pair.small[0] == 3).item<bool>());
  pair.small[0].zero_();  // nobody reads it any more
  begun.wait();
  EXPECT_TRUE(torch::all(pair.small[1] == 3).item<bool>());
}

TEST(OneWait, WhoHasArrivedMayEndAfterAnotherHasGivenUp) {
  Pair pair;
  Work begun = pair.second.all_reduce(pair.small[1], ReduceOp::kSum);
  pair.first.all_reduce(pair.small[0], ReduceOp::kSum).wait();
  pair.first.abort("no such file");
  begun.wait();
  EXPECT_TRUE(torch::all(pair.small[1] == 3).item<bool>());
  EXPECT_EQ(testing::message_of<CommError>([&] { pair.second.barrier().wait(); }), "no such file");
}

}  // namespace
}  // namespace lockstep
