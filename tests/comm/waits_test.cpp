// How ranks wait for each other; see Note [Waits] and Note [Alarms].

#include <array>
#include <atomic>
#include <functional>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <thread>

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

// A ring that is lost shows as a sleep that the time ends.
TEST(HostWaits, NoRingIsLost) {
  constexpr int kTurns = 20'000;
  std::array<host::Alarm, 2> alarms{};
  std::atomic<int> turn{0};
  std::atomic<int> lost{0};
  const auto play = [&](int own) {
    for (int mine = own; mine < kTurns; mine += 2) {
      const auto is_mine = [&] { return turn.load(std::memory_order_relaxed) == mine; };
      while (!is_mine())
        lost +=
            !alarms[static_cast<std::size_t>(own)].sleep_unless(is_mine, std::chrono::seconds(20));
      turn.store(mine + 1, std::memory_order_relaxed);
      std::atomic_thread_fence(std::memory_order_seq_cst);
      alarms[static_cast<std::size_t>(1 - own)].ring();
    }
  };
  std::thread other(play, 1);
  play(0);
  other.join();
  EXPECT_EQ(lost, 0);
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
