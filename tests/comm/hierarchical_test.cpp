// Ranks on several hosts that lose one another, leave, give up, or depend on each other's messages;
// all hosts are this one: only what the ranks are told of their hosts differs. And the parts that
// need no other rank: who shares a host, what is cut into chunks, the threads that carry calls on.

#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <vector>

#include "group_factory.h"
#include "tests/support/message_of.h"
#include "tests/support/shared_flag.h"

#include "lockstep/comm/hierarchy/chunks.h"
#include "lockstep/comm/hierarchy/hierarchical_backend.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/store.h"
#include "lockstep/comm/work_queue.h"
#include "lockstep/core/error.h"
#include "lockstep/core/progress_thread.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::message_of;
using testing::SharedFlag;

constexpr std::int64_t kSeveralChunks = 3'000'001;

torch::Tensor numbers_of(int rank, std::int64_t elements) {
  return torch::arange(elements) % 1000 + 1000 * rank;
}

TEST(Hierarchical, IsSharedMemoryOrGlooWhereThereIsOneLevel) {
  testing::run_group("hosts_0001", 4, [](ProcessGroup group) {
    EXPECT_EQ(group.backend_name(), "hierarchical");
    const ProcessGroup on_one_host = group.split(group.rank() / 3, 0);
    if (group.rank() < 3) {
      EXPECT_EQ(on_one_host.backend_name(), "shm");
    }
    group.barrier().wait();  // none ends while others still connect
  });
  testing::run_group("hosts_0110", 4, [](ProcessGroup group) {
    const ProcessGroup pair = group.split(group.rank() / 2, 0);
    EXPECT_EQ(pair.backend_name(), "gloo");
    const ProcessGroup three = group.split(group.rank() == 2 ? 1 : 0, -group.rank());
    if (group.rank() != 2) {
      EXPECT_EQ(three.backend_name(), "hierarchical");
    }
    group.barrier().wait();
  });
}

TEST(Hierarchical, SubgroupsOfAnyShapeReduce) {
  testing::run_group("hosts_0110", 4, [](ProcessGroup group) {
    for (const auto& colors :
        std::vector<std::vector<int>>{{0, 0, 0, 1}, {0, 0, 1, 1}, {0, 1, 1, 0}, {0, 1, 2, 3}}) {
      const int color = colors[static_cast<std::size_t>(group.rank())];
      const ProcessGroup part = group.split(color, -group.rank());
      int expected = 0;
      for (int rank = 0; rank < 4; ++rank)
        if (colors[static_cast<std::size_t>(rank)] == color) expected += rank + 1;
      const torch::Tensor sum = torch::full({100'000}, group.rank() + 1);
      part.all_reduce(sum).wait();
      EXPECT_TRUE(sum.eq(expected).all().item<bool>()) << "colour " << color;
    }
  });
}

// Long messages go in chunks, each kind by its own way through the levels.
TEST(Hierarchical, LongMessagesArriveWhole) {
  for (const std::string hosts : {"hosts_0011", "hosts_0110", "hosts_0001"}) {
    testing::run_group(hosts, 4, [](ProcessGroup group) {
      const int rank = group.rank();
      for (int root = 0; root < 4; ++root) {
        const torch::Tensor cast = numbers_of(rank, kSeveralChunks);
        group.broadcast(cast, root).wait();
        EXPECT_TRUE(cast.equal(numbers_of(root, kSeveralChunks))) << root;
        const torch::Tensor sum = numbers_of(rank, kSeveralChunks);
        group.reduce(sum, root, ReduceOp::kMax).wait();
        EXPECT_TRUE(sum.equal(numbers_of(rank == root ? 3 : rank, kSeveralChunks))) << root;
      }
      const torch::Tensor all = torch::empty({4, kSeveralChunks}, torch::kLong);
      group.all_gather(all, numbers_of(rank, kSeveralChunks)).wait();
      for (int other = 0; other < 4; ++other)
        EXPECT_TRUE(all[other].equal(numbers_of(other, kSeveralChunks))) << other;
      const torch::Tensor mean = torch::full({kSeveralChunks}, rank + 1.0, torch::kBFloat16);
      group.all_reduce(mean, ReduceOp::kMean).wait();
      EXPECT_TRUE(mean.eq(2.5).all().item<bool>());
      const std::int64_t count = kSeveralChunks / 4;
      const torch::Tensor pieces = numbers_of(rank, 4 * count), before = pieces.clone();
      const torch::Tensor own = pieces.narrow(0, rank * count, count);
      group.reduce_scatter(own, pieces).wait();
      const torch::Tensor sums = 4 * numbers_of(0, 4 * count) + 6000;
      before.narrow(0, rank * count, count).copy_(sums.narrow(0, rank * count, count));
      EXPECT_TRUE(pieces.equal(before));
    });
  }
}

// With two hosts neither depends on where in the tensor an element lies.
TEST(Hierarchical, AReduceScatterHasTheBitsOfAnAllReduce) {
  for (const std::string hosts : {"hosts_0011", "hosts_0110", "hosts_0001"}) {
    testing::run_group(hosts, 4, [](ProcessGroup group) {
      for (const std::int64_t piece : {5, 70'000, 300'001})
        for (const auto type : {torch::kFloat, torch::kBFloat16})
          for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean}) {
            const torch::Tensor steps = torch::arange(4 * piece).to(torch::kFloat);
            const torch::Tensor input = torch::sin(steps * (1.7 + group.rank())).to(type);
            const torch::Tensor output = torch::empty({piece}, type), sums = input.clone();
            group.reduce_scatter(output, input, op).wait();
            group.all_reduce(sums, op).wait();
            EXPECT_TRUE(output.equal(sums.view({4, -1})[group.rank()])) << piece << " " << type;
          }
    });
  }
}

// Rank 1's message needs rank 0 to look at its mailboxes, while rank 0 waits for rank 2, which
// waits for rank 1.
TEST(Hierarchical, MessagesWithinAHostGoOnWhileARankWaitsForAnother) {
  testing::run_group("hosts_0011", 4, [](ProcessGroup group) {
    constexpr std::int64_t kLong = 5'000'000;  // more than the mailboxes hold
    const torch::Tensor tensor = torch::full({kLong}, static_cast<float>(group.rank()));
    Work sent;
    if (group.rank() == 0) {
      sent = group.send(tensor, 1);
      group.recv(torch::empty({1}), 2).wait();
    }
    if (group.rank() == 1) {
      group.recv(tensor, 0).wait();
      EXPECT_TRUE(tensor.eq(0).all().item<bool>());
      group.send(torch::ones({1}), 2).wait();
    }
    if (group.rank() == 2) {
      group.recv(torch::empty({1}), 1).wait();
      group.send(torch::ones({1}), 0).wait();
    }
    sent.wait();
    group.barrier().wait();
  });
}

TEST(Hierarchical, NeighboursMayMatchTags) {
  const Store store = memory_store();
  const auto exchange = [&store](int rank) {
    const auto backend = make_hierarchical_backend(store, rank, {"a", "a", "b"},
        {.hostname = "127.0.0.1", .timeout = std::chrono::minutes(1)});
    backend->match_tags();
    const ProcessGroup group(backend);
    group.barrier().wait();
    torch::Tensor number = torch::zeros({1});
    for (const int tag : {5, 6})
      if (rank == 0) group.send(torch::full({1}, static_cast<float>(tag)), 1, tag).wait();
    for (const int tag : {6, 5}) {
      if (rank != 1) continue;
      Work work = group.recv(number, 0, tag);
      work.wait();
      EXPECT_EQ(number.item<float>(), static_cast<float>(tag));
      EXPECT_EQ(work.sender(), 0);
    }
    group.barrier().wait();
  };
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 3; ++rank) threads.emplace_back(exchange, rank);
}

TEST(Hierarchical, AnAbortReachesAllHostsAndTheNeighboursHearWhy) {
  SharedFlag told[4];
  testing::run_group("hosts_0011", 4, [&](ProcessGroup group) {
    group.barrier().wait();
    if (group.rank() == 1) {
      group.abort("the model of rank 1 is another one");
      for (const int other : {0, 2, 3}) told[other].wait();
      return;
    }
    const std::string text = message_of<CommError>([&] { group.barrier().wait(); });
    if (group.rank() == 0) {
      EXPECT_THAT(text, HasSubstr("the model of rank 1 is another one"));
    }
    EXPECT_THROW(group.all_reduce(torch::ones({1})).wait(), CommError) << "it stays failed";
    told[group.rank()].raise();
  });
}

TEST(Hierarchical, NeighboursThatCallDifferentCollectivesAreToldBoth) {
  testing::run_group("hosts_0011", 4, [&](ProcessGroup group) {
    const bool is_odd = group.rank() == 1;
    const auto call = [&] { group.all_reduce(torch::ones({is_odd ? 5 : 4})).wait(); };
    if (group.rank() > 1) {
      EXPECT_THROW(call(), CommError);
      return;
    }
    const std::string text = message_of<InvalidArgument>(call);
    EXPECT_THAT(text, HasSubstr("reduce of 4 Float elements"));
    EXPECT_THAT(text, HasSubstr("reduce of 5 Float elements"));
  });
}

TEST(Hierarchical, WorkOfARankThatLeavesEnds) {
  SharedFlag left;
  testing::run_group("hosts_0011", 4, [&](ProcessGroup group) {
    group.barrier().wait();
    if (group.rank() != 0) return left.wait();
    std::vector<Work> works = {
        group.all_reduce(torch::ones({4})), group.barrier(), group.broadcast(torch::ones({4}), 0)};
    group = ProcessGroup();
    for (Work& work : works) EXPECT_THROW(work.wait(), CommError);
    left.raise();
  });
}

TEST(Hierarchical, TheBitsOfASumDoNotDependOnTheChunksOfOtherMessages) {
  testing::run_group("hosts_0011", 4, [&](ProcessGroup group) {
    const torch::Tensor steps = torch::arange(kSeveralChunks).to(torch::kFloat);
    const auto sum = [&] {
      const torch::Tensor tensor = torch::sin(steps * (1.7 + group.rank()));
      Work before = group.all_reduce(torch::ones({700'001}));
      group.all_reduce(tensor).wait();
      before.wait();
      return tensor;
    };
    const torch::Tensor first = sum();
    for (int time = 0; time < 3; ++time) EXPECT_TRUE(sum().equal(first));
    const torch::Tensor all = torch::empty({4, kSeveralChunks});
    group.all_gather(all, first).wait();
    for (int rank = 0; rank < 4; ++rank) EXPECT_TRUE(all[rank].equal(first)) << rank;
  });
}

}  // namespace
}  // namespace lockstep

namespace lockstep::hierarchy {
namespace {

using ::testing::ElementsAre;
using testing::message_of;

TEST(Nodes, AreNumberedByTheirFirstRanks) {
  const Nodes nodes({"b", "a", "a", "b", "a"});
  EXPECT_EQ(nodes.count(), 2);
  EXPECT_EQ(nodes.size(), 5);
  EXPECT_THAT(nodes.ranks_of(0), ElementsAre(0, 3));
  EXPECT_THAT(nodes.ranks_of(1), ElementsAre(1, 2, 4));
  EXPECT_EQ(nodes.node_of(3), 0);
  EXPECT_EQ(nodes.index_of(3), 1);
  EXPECT_EQ(nodes.index_of(4), 2);
  EXPECT_EQ(nodes.fewest(), 2);
}

TEST(Nodes, HaveRanksAcrossThem) {
  const Nodes nodes({"b", "a", "a", "b", "a"});
  EXPECT_THAT(nodes.ranks_across(0), ElementsAre(0, 1));
  EXPECT_THAT(nodes.ranks_across(1), ElementsAre(3, 2));
  EXPECT_THAT(nodes.ranks_across(2), ElementsAre(4));
}

TEST(Nodes, AreLevelsOnlyWithSeveralRanksSomewhere) {
  EXPECT_TRUE(Nodes({"a", "b", "b"}).are_levels());
  EXPECT_FALSE(Nodes({"a", "b", "c"}).are_levels());
  EXPECT_FALSE(Nodes({"a", "a"}).are_levels());
}

TEST(Nodes, OfASubgroupKeepItsOrder) {
  const Nodes nodes = Nodes({"a", "a", "b", "b"}).among({3, 0, 2});
  EXPECT_EQ(nodes.count(), 2);
  EXPECT_THAT(nodes.ranks_of(0), ElementsAre(0, 2));
  EXPECT_THAT(nodes.ranks_of(1), ElementsAre(1));
}

// Each element exactly once, in order.
void expect_cover(const std::vector<Part>& parts, std::int64_t begin, std::int64_t end) {
  for (const Part& part : parts) {
    EXPECT_EQ(part.begin, begin);
    EXPECT_GE(part.count, 0);
    begin += part.count;
  }
  EXPECT_EQ(begin, end);
}

TEST(Chunks, CoverEveryMessageInAlignedSteps) {
  for (const std::size_t width : {1U, 2U, 4U, 8U}) {
    for (const int lanes : {1, 2, 3, 8}) {
      for (const std::int64_t elements : {0, 1, 63, 65, 4097, 1'000'003, 100'000'000}) {
        const auto chunks = cut_into_chunks(elements, width, lanes);
        expect_cover(chunks, 0, elements);
        for (const Part& chunk : chunks) {
          EXPECT_GT(chunk.count, 0);
          EXPECT_EQ(chunk.begin % (64 * lanes), 0);
          std::vector<Part> parts;
          for (int lane = 0; lane < lanes; ++lane)
            parts.push_back(part_of_lane(chunk, lane, lanes));
          expect_cover(parts, chunk.begin, chunk.begin + chunk.count);
        }
      }
    }
  }
}

TEST(Chunks, AreAFewOfAMiddlingMessageAndNotLargerThanAMegabyteALane) {
  EXPECT_EQ(cut_into_chunks(1000, 4, 2).size(), 1U);
  EXPECT_EQ(cut_into_chunks(1 << 20, 4, 1).size(), 8U);
  EXPECT_EQ(cut_into_chunks(1 << 24, 4, 2).front().count, 1 << 19);
}

TEST(Chunks, OfAShortMessageTakeOneLane) {
  EXPECT_EQ(lanes_for(0, 4), 1);
  EXPECT_EQ(lanes_for(4096, 4), 1);
  EXPECT_EQ(lanes_for(1 << 20, 4), 4);
  EXPECT_EQ(lanes_for(1 << 20, 1), 1);
}

TEST(WorkQueue, CarriesOutCallsInTheirOrder) {
  std::vector<int> seen;
  WorkQueue queue([](const std::string&) {});
  std::vector<Work> works;
  for (int i = 0; i < 100; ++i) works.push_back(queue.add([&seen, i] { seen.push_back(i); }));
  works.back().wait();
  EXPECT_TRUE(works.front().done());
  EXPECT_TRUE(queue.is_idle());
  ASSERT_EQ(seen.size(), 100U);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
}

TEST(WorkQueue, TellsOfAFailureAndGoesOn) {
  std::string heard;
  WorkQueue queue([&](const std::string& reason) { heard = reason; });
  Work bad = queue.add([] { throw InvalidArgument("another size"); });
  Work odd = queue.add([] { throw 1; });
  EXPECT_EQ(message_of<InvalidArgument>([&] { bad.wait(); }), "another size");
  EXPECT_THROW(odd.wait(), int);
  queue.add([] {}).wait();
  EXPECT_EQ(heard, "an exception of an unknown type");
}

TEST(WorkQueue, CarriesOutNothingMoreOnceItIsClosed) {
  std::promise<void> begun, may_end;
  std::atomic<int> ended = 0;
  WorkQueue queue([](const std::string&) {});
  Work first = queue.add([&] {
    begun.set_value();
    may_end.get_future().wait();
    ++ended;
  });
  Work waiting = queue.add([&] { ++ended; });
  begun.get_future().wait();
  std::thread closer([&] { queue.close(); });
  Work late = waiting;
  while (!late.done()) late = queue.add([&] { ++ended; });
  may_end.set_value();
  closer.join();
  first.wait();
  for (Work* work : {&waiting, &late})
    EXPECT_EQ(message_of<CommError>([&] { work->wait(); }), "the group was closed");
  EXPECT_EQ(ended, 1);
}

TEST(ProgressThread, GoesOnUntilNothingIsUnderWay) {
  std::atomic<int> left = 0;
  std::promise<void> last;
  ProgressThread thread([&]() -> ProgressThread::Pause {
    if (left.fetch_sub(1) == 1) last.set_value();
    if (left <= 0) return std::nullopt;
    return std::chrono::microseconds(left.load() % 2);
  });
  left = 5;
  thread.wake();
  EXPECT_EQ(last.get_future().wait_for(std::chrono::minutes(1)), std::future_status::ready);
}

}  // namespace
}  // namespace lockstep::hierarchy
