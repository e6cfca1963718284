// How ranks wait for each other; see Note [Waits] and Note [Alarms]. What is asked for by
// Work::done() is done in the end, by asking alone; who only asks learns what who waits learns; and
// groups may be waited for in any order.

#include <array>
#include <atomic>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "contract.h"
#include "tests/support/busy_core.h"
#include "tests/support/shared_flag.h"

#include "lockstep/comm/host_backends.h"
#include "lockstep/core/error.h"
#include "lockstep/core/stopwatch.h"

namespace lockstep {
namespace {

constexpr auto kLate = std::chrono::milliseconds(300);

/// Makes two ranks, of which rank 1 comes late, and counts the switches of rank 0 in its wait.
testing::Switches wait_of_rank_0(
    const std::function<void()>& prepare, const std::function<Work(Backend&)>& call) {
  const auto region = ThreadBackend::make_region(2);
  ThreadBackend first(region, 0), second(region, 1);
  testing::Switches switches;
  std::thread waits([&] {
    prepare();
    switches = testing::switches_of([&] { call(first).wait(); });
  });
  std::this_thread::sleep_for(kLate);
  call(second).wait();
  waits.join();
  return switches;
}

Work barrier_of(Backend& backend) { return backend.barrier(); }

TEST(HostWaits, WhoWaitsForLongSleepsUntilItIsWoken) {
  EXPECT_LT(wait_of_rank_0([] {}, barrier_of).voluntary, 100);
}

// Each time that it is switched away while it could go on, it has spun in another's time.
TEST(HostWaits, WhoWaitsDoesNotSpinWhereAnotherThreadCouldRun) {
  const testing::BusyThread busy;
  EXPECT_LT(wait_of_rank_0(testing::pin_to_first_core, barrier_of).involuntary, 20);
}

TEST(HostWaits, AMessageWakesItsReceiver) {
  torch::Tensor tensor = torch::ones({100});
  const auto call = [&](Backend& backend) {
    return backend.rank() == 0 ? backend.recv(tensor, 1, 0) : backend.send(tensor, 0, 0);
  };
  EXPECT_LT(wait_of_rank_0([] {}, call).voluntary, 100);
}

TEST(HostWaits, ARingBetweenTheLastLookAndTheSleepIsHeard) {
  host::Alarm alarm{};
  const auto look = [&] {
    alarm.ring();
    return false;
  };
  EXPECT_TRUE(alarm.sleep_unless(look, std::chrono::seconds(1))) << "it slept until the time came";
}

/// Ranks in one thread, and whether rank 0 sleeps.
struct Sleeper {
  std::shared_ptr<host::SharedRegion> region = ThreadBackend::make_region(3);
  std::array<std::unique_ptr<ThreadBackend>, 3> ranks;
  torch::Tensor tensor = torch::ones({4});

  Sleeper() {
    for (int rank = 0; rank < 3; ++rank)
      ranks[static_cast<std::size_t>(rank)] = std::make_unique<ThreadBackend>(region, rank);
  }
  void set() const {
    region->alarm(0).sleep_unless([] { return true; }, std::chrono::milliseconds(0));
  }
  bool sleeps() const { return region->alarm(0).is_set(); }
};

TEST(HostWaits, TheLastRankToArriveRings) {
  const Sleeper of;
  std::array<Work, 3> works;
  works[0] = of.ranks[0]->barrier();
  of.set();
  works[1] = of.ranks[1]->barrier();
  EXPECT_TRUE(of.sleeps());
  works[2] = of.ranks[2]->barrier();
  EXPECT_FALSE(of.sleeps());
  for (Work& work : works) work.wait();
}

// Where a rank's own memory is read, it waits until all have read it.
TEST(HostWaits, TheLastRankToFinishRings) {
  Sleeper of;
  of.tensor = torch::ones({100'000});
  std::vector<Work> works;  // rank 2 finds all there and finishes at once
  for (std::size_t rank = 0; rank < 3; ++rank)
    works.push_back(of.ranks[rank]->all_reduce(of.tensor.clone(), ReduceOp::kSum));
  EXPECT_FALSE(works[0].done());
  of.set();
  EXPECT_TRUE(works[1].done());
  EXPECT_FALSE(of.sleeps());
  for (Work& work : works) work.wait();
}

TEST(HostWaits, WhoSendsRingsForTheReceiver) {
  const Sleeper of;
  of.set();
  Work sent = of.ranks[1]->send(of.tensor, 0, 0);
  EXPECT_FALSE(of.sleeps());
}

TEST(HostWaits, WhoReadsFromAFullMailboxRingsForTheSender) {
  const Sleeper of;
  std::vector<Work> sent;
  for (std::size_t letter = 0; letter <= host::Mailbox::kSlots; ++letter)
    sent.push_back(of.ranks[0]->send(of.tensor, 1, 0));
  EXPECT_FALSE(sent.back().done());
  of.set();
  of.ranks[1]->recv(of.tensor, 0, 0).wait();
  EXPECT_FALSE(of.sleeps());
  of.set();
  of.ranks[1]->recv(of.tensor, 0, 0).wait();
  EXPECT_TRUE(of.sleeps()) << "there was room";
}

TEST(HostWaits, WhoGivesUpOrLeavesRings) {
  Sleeper of;
  of.set();
  of.ranks[1].reset();
  EXPECT_FALSE(of.sleeps());
  of.set();
  of.ranks[2]->abort("no such file");
  EXPECT_FALSE(of.sleeps());
}

TEST(HostWaits, ARankHasOneAlarmForAllItsGroups) {
  const auto region = ThreadBackend::make_region(3);
  std::array<host::SharedRegion*, 3> parts{};
  std::array<std::shared_ptr<Backend>, 3> groups;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      ThreadBackend backend(region, rank);
      auto group = backend.subgroup(rank == 1 ? std::vector<int>{1} : std::vector<int>{0, 2});
      const auto at = static_cast<std::size_t>(rank);
      groups[at] = group;
      parts[at] = dynamic_cast<ThreadBackend&>(*group).shared_region().get();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(&parts[0]->alarm(0), &region->alarm(0));
  EXPECT_EQ(&parts[0]->alarm(1), &region->alarm(2));
  EXPECT_EQ(&parts[1]->alarm(0), &region->alarm(1));
}

using testing::Contract;
using testing::SharedFlag;

class Asking : public Contract {};
INSTANTIATE_TEST_SUITE_P(Backends, Asking,
    ::testing::Combine(::testing::Values("threads", "shm", "gloo"), ::testing::Values(2, 3)),
    testing::contract_name);
INSTANTIATE_TEST_SUITE_P(Hosts, Asking, testing::kHosts, testing::contract_name);

// Asks until the work is done; false after twenty seconds, a guard against asking for ever.
bool becomes_done(Work& work) {
  const Stopwatch stopwatch;
  while (!work.done() && stopwatch.seconds() < 20) std::this_thread::yield();
  return work.done();
}

// Asks for all in turn, as a program does that has something else to do in between.
bool all_become_done(std::vector<Work>& works) {
  bool done = true;
  for (Work& work : works) done = becomes_done(work) && done;
  return done;
}

torch::Tensor number(double value, std::int64_t elements = 3) {
  return torch::full({elements}, value);
}

TEST_P(Asking, CollectivesEndByAskingAlone) {
  run([](ProcessGroup group) {
    const torch::Tensor sum = number(group.rank() + 1.0), cast = number(group.rank());
    const torch::Tensor all = torch::empty({group.size(), 3});
    std::vector<Work> works = {group.all_reduce(sum), group.broadcast(cast, 1),
        group.all_gather(all, number(group.rank())), group.barrier()};
    EXPECT_TRUE(all_become_done(works));
    for (Work& work : works) work.wait();
    EXPECT_TRUE(sum.equal(number(group.size() * (group.size() + 1) / 2.0)));
    EXPECT_TRUE(cast.equal(number(1)));
    for (int rank = 0; rank < group.size(); ++rank) EXPECT_TRUE(all[rank].equal(number(rank)));
  });
}

// From each rank to the next one: a short message, one of several letters, and none at all.
TEST_P(Asking, MessagesEndByAskingAlone) {
  run([](ProcessGroup group) {
    const int next = (group.rank() + 1) % group.size();
    const int before = (group.rank() + group.size() - 1) % group.size();
    for (const std::int64_t elements : {3, 100'001, 0, 5}) {
      const torch::Tensor received = torch::zeros({elements});
      std::vector<Work> works = {
          group.send(number(group.rank(), elements), next), group.recv(received, before)};
      EXPECT_TRUE(all_become_done(works)) << elements;
      for (Work& work : works) work.wait();
      EXPECT_TRUE(received.equal(number(before, elements))) << elements;
    }
  });
}

// More than the mailboxes hold, so the sender depends on the receiver.
TEST_P(Asking, ManyMessagesEndByAskingForTheLast) {
  run([](ProcessGroup group) {
    constexpr int kCount = 600;
    std::vector<torch::Tensor> tensors;
    std::vector<Work> works;
    for (int i = 0; i < kCount && group.rank() < 2; ++i) {
      tensors.push_back(number(group.rank() == 0 ? i : -1, 2));
      works.push_back(
          group.rank() == 0 ? group.send(tensors.back(), 1) : group.recv(tensors.back(), 0));
    }
    if (group.rank() < 2) {
      EXPECT_TRUE(becomes_done(works.back()));
    }
    for (Work& work : works) work.wait();
    if (group.rank() != 1) return;
    for (int i = 0; i < kCount; ++i)
      EXPECT_TRUE(tensors[static_cast<std::size_t>(i)].equal(number(i, 2))) << i;
  });
}

TEST_P(Asking, WorkMayBeWaitedForAndAskedForAgain) {
  run([](ProcessGroup group) {
    const torch::Tensor tensor = number(group.rank());
    Work message;
    if (group.rank() == 0) message = group.send(tensor, 1);
    if (group.rank() == 1) message = group.recv(tensor, 0);
    Work collective = group.all_reduce(number(1));
    for (Work* work : {&message, &collective}) {
      work->wait();
      EXPECT_TRUE(work->done());
      work->wait();
    }
    if (group.rank() == 1) {
      EXPECT_TRUE(tensor.equal(number(0)));
    }
  });
}

// As in NCCL, MPI and Gloo: a rank that waits for one group does its part in the others. Small
// tensors would end without that.
TEST_P(Asking, GroupsMayBeWaitedForInAnyOrder) {
  run([](ProcessGroup group) {
    constexpr std::int64_t kElements = 300'000;
    const ProcessGroup first = group.split(0, group.rank()), second = first.split(0, group.rank());
    for (const auto& [one, other] :
        {std::pair{first, second}, std::pair{second, first}, std::pair{group, second}}) {
      const torch::Tensor tensor = number(group.rank() + 1.0, kElements);
      Work sum = other.all_reduce(tensor);
      if (group.rank() % 2 == 1) sum.wait();
      one.barrier().wait();
      sum.wait();
      EXPECT_TRUE(tensor.equal(number(group.size() * (group.size() + 1) / 2.0, kElements)));
    }
  });
}

template <typename Exception>
void expect_to_fail_by_asking(Work work) {
  EXPECT_TRUE(becomes_done(work));
  EXPECT_THROW(work.wait(), Exception);
}

// Rank 1 does nothing until rank 0 has given up.
TEST_P(Asking, WhoOnlyAsksSeesTheDeadline) {
  SharedFlag over;
  run([&](ProcessGroup group) {
    group.barrier().wait();
    group.set_timeout(std::chrono::milliseconds(200));
    if (group.rank() == 0) expect_to_fail_by_asking<TimeoutError>(group.all_reduce(number(1)));
    if (group.rank() == 0) over.raise();
    over.wait();
  });
}

TEST_P(Asking, WhoOnlyAsksForAMessageSeesTheDeadline) {
  SharedFlag over;
  run([&](ProcessGroup group) {
    group.barrier().wait();
    group.set_timeout(std::chrono::milliseconds(200));
    if (group.rank() == 0) expect_to_fail_by_asking<TimeoutError>(group.recv(number(1), 1));
    if (group.rank() == 0) over.raise();
    over.wait();
  });
}

// Rank 1 leaves the group and lives on until all have noticed; the limit is a minute.
TEST_P(Asking, WhoOnlyAsksSeesALostPeer) {
  SharedFlag over[4];
  run([&](ProcessGroup group) {
    group.barrier().wait();
    const int rank = group.rank(), last = group.size() - 1;
    if (rank == 1) group = ProcessGroup();
    if (rank != 1) expect_to_fail_by_asking<CommError>(group.all_reduce(number(1)));
    over[rank].raise();
    over[0].wait(), over[last].wait();
  });
}

// It leaves once the message is awaited: before, the call itself may fail.
TEST_P(Asking, WhoOnlyAsksForAMessageSeesALostPeer) {
  SharedFlag asked, over;
  run([&](ProcessGroup group) {
    group.barrier().wait();
    if (group.rank() == 0) {
      Work message = group.recv(number(1), 1);
      asked.raise();
      expect_to_fail_by_asking<CommError>(std::move(message));
      over.raise();
    } else if (group.rank() == 1) {
      asked.wait();
      group = ProcessGroup();
    }
    over.wait();
  });
}

// A message that nobody asks for any more must not hold up its rank until the deadline.
TEST_P(Asking, AMessageThatIsGivenUpDoesNotHoldUpItsRank) {
  SharedFlag over;
  run([&](ProcessGroup group) {
    group.barrier().wait();
    if (group.rank() == 0) {
      const Stopwatch stopwatch;
      {
        Work never = group.recv(number(1), 1);
        EXPECT_FALSE(never.done());
      }
      EXPECT_LT(stopwatch.seconds(), 30) << "the group's limit is a minute";
      over.raise();
    }
    over.wait();
  });
}

}  // namespace
}  // namespace lockstep
