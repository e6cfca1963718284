// How the kernel schedules Gloo's threads: Note [Gloo's loop].

#include <chrono>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <latch>
#include <map>
#include <optional>
#include <pthread.h>
#include <sched.h>
#include <string>
#include <thread>

#include "tests/comm/group_factory.h"

#include "lockstep/comm/gloo_loop.h"

namespace lockstep {
namespace {

std::multimap<std::string, int> policies_by_thread_name() {
  std::multimap<std::string, int> policies;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm") >> std::ws, name);
    policies.emplace(name, ::sched_getscheduler(std::stoi(task.path().filename())));
  }
  return policies;
}

TEST(GlooThreads, OnlyTheLoopGivesWay) {
  testing::run_group("gloo", 2, [](ProcessGroup group) {
    const auto policies = policies_by_thread_name();
    ASSERT_EQ(policies.count("gloo_tcp_loop"), 1u) << "of rank " << group.rank();
    for (const auto& [name, policy] : policies)
      EXPECT_EQ(policy, name == "gloo_tcp_loop" ? SCHED_BATCH : SCHED_OTHER) << name;
  });
}

TEST(BatchThreads, LeaveAPolicyThatSomebodyChose) {
  const sched_param none = {};
  ASSERT_EQ(::sched_setscheduler(0, SCHED_IDLE, &none), 0);
  {
    const BatchThreads threads;
    EXPECT_EQ(::sched_getscheduler(0), SCHED_IDLE);
  }
  EXPECT_EQ(::sched_getscheduler(0), SCHED_IDLE);
  ASSERT_EQ(::sched_setscheduler(0, SCHED_OTHER, &none), 0);
}

/// A thread that is named as Gloo's loop and does nothing.
class IdleLoop {
 public:
  IdleLoop() : thread_([this] { run(); }) { named_.wait(); }
  ~IdleLoop() {
    end_.count_down();
    thread_.join();
  }
  IdleLoop(const IdleLoop&) = delete;
  IdleLoop& operator=(const IdleLoop&) = delete;

 private:
  void run() {
    ::pthread_setname_np(::pthread_self(), "gloo_tcp_loop");
    named_.count_down();
    end_.wait();
  }

  std::latch named_{1}, end_{1};
  std::thread thread_;
};

int policy_of_the_loop() { return policies_by_thread_name().find("gloo_tcp_loop")->second; }

TEST(LoopPolicy, GivesWayUnlessOthersWantTheCore) {
  using std::chrono::milliseconds;
  const IdleLoop loop;
  CoreTimes times;
  LoopPolicy policy([&] { return std::optional(times); });
  const auto policy_after = [&](milliseconds ran, milliseconds waited) {
    times.ran += ran;
    times.waited += waited;
    std::this_thread::sleep_for(milliseconds(60));
    policy.adapt();
    return policy_of_the_loop();
  };
  EXPECT_EQ(policy_after(milliseconds(20), milliseconds(30)), SCHED_OTHER);
  EXPECT_EQ(policy_after(milliseconds(20), milliseconds(30)), SCHED_OTHER) << "it stays";
  EXPECT_EQ(policy_after(milliseconds(30), milliseconds(30)), SCHED_BATCH);
  EXPECT_EQ(policy_after(milliseconds(0), milliseconds(0)), SCHED_BATCH);
}

TEST(CoreTimes, AreThoseOfTheThreadThatAsked) {
  const auto times = core_times_of_this_thread();
  const auto before = times();
  if (!before) GTEST_SKIP() << "this kernel does not count how long threads wait";
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
  while (std::chrono::steady_clock::now() < end) {
  }
  EXPECT_GT(times()->ran, before->ran);
}

}  // namespace
}  // namespace lockstep
