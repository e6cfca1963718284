// How the kernel schedules Gloo's threads: Note [Gloo's loop].

#include "lockstep/comm/gloo_threads.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <sched.h>
#include <string>

#include "tests/comm/group_factory.h"

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

}  // namespace
}  // namespace lockstep
