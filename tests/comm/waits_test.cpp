// How ranks wait for each other; see Note [Waits] and Note [Alarms].

#include <array>
#include <atomic>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <sched.h>
#include <sys/resource.h>
#include <thread>
#include <vector>

#include "lockstep/comm/host_backends.h"

namespace lockstep {
namespace {

constexpr auto kLate = std::chrono::milliseconds(300);

rusage use_of_this_thread() {
  rusage use{};
  ::getrusage(RUSAGE_THREAD, &use);
  return use;
}

void pin_to_first_core() {
  cpu_set_t mask;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(mask), &mask), 0);
  std::size_t core = 0;
  while (!CPU_ISSET(core, &mask)) ++core;
  CPU_ZERO(&mask);
  CPU_SET(core, &mask);
  ASSERT_EQ(::sched_setaffinity(0, sizeof(mask), &mask), 0);
}

/// A thread that computes on the first core as long as this lives.
class BusyThread {
 public:
  BusyThread()
      : thread_([this] {
          pin_to_first_core();
          while (!ends_) ++turns_;
        }) {}
  ~BusyThread() {
    ends_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> ends_{false};
  std::atomic<std::uint64_t> turns_{0};
  std::thread thread_;
};

/// Two ranks, of which rank 1 comes late, and what the wait was for rank 0.
rusage wait_of_rank_0(
    const std::function<void()>& prepare, const std::function<Work(Backend&)>& call) {
  const auto region = ThreadBackend::make_region(2);
  ThreadBackend first(region, 0), second(region, 1);
  rusage use{};
  std::thread waits([&] {
    prepare();
    const rusage before = use_of_this_thread();
    call(first).wait();
    use = use_of_this_thread();
    use.ru_nvcsw -= before.ru_nvcsw;
    use.ru_nivcsw -= before.ru_nivcsw;
  });
  std::this_thread::sleep_for(kLate);
  call(second).wait();
  waits.join();
  return use;
}

Work barrier_of(Backend& backend) { return backend.barrier(); }

TEST(HostWaits, WhoWaitsForLongSleepsUntilItIsWoken) {
  EXPECT_LT(wait_of_rank_0([] {}, barrier_of).ru_nvcsw, 100);
}

// Each time that it is switched away while it could go on, it has spun in another's time.
TEST(HostWaits, WhoWaitsDoesNotSpinWhereAnotherThreadCouldRun) {
  const BusyThread busy;
  EXPECT_LT(wait_of_rank_0(pin_to_first_core, barrier_of).ru_nivcsw, 20);
}

TEST(HostWaits, AMessageWakesItsReceiver) {
  torch::Tensor tensor = torch::ones({100});
  const auto call = [&](Backend& backend) {
    return backend.rank() == 0 ? backend.recv(tensor, 1, 0) : backend.send(tensor, 0, 0);
  };
  EXPECT_LT(wait_of_rank_0([] {}, call).ru_nvcsw, 100);
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

}  // namespace
}  // namespace lockstep
