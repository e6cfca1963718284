#include "lockstep/launch/launch_options.h"

#include <gmock/gmock.h>
#include <sched.h>
#include <stdlib.h>

#include "tests/support/message_of.h"

#include "lockstep/core/error.h"
#include "lockstep/launch/cgroup.h"
#include "lockstep/launch/child_process.h"
#include "lockstep/launch/cpu_share.h"

namespace lockstep::launch {
namespace {

using Cpus = std::vector<int>;

TEST(CpuShare, CutsContiguousParts) {
  const Cpus cpus{0, 1, 4, 5, 8};
  EXPECT_EQ(cpu_share(cpus, 0, 2), (Cpus{0, 1, 4}));
  EXPECT_EQ(cpu_share(cpus, 1, 2), (Cpus{5, 8}));
  EXPECT_EQ(cpu_share(cpus, 0, 1), cpus);
  EXPECT_EQ(cpu_share(cpus, 4, 5), (Cpus{8}));
}

TEST(CpuShare, PinsNobodyWhenThereAreTooFewCores) {
  EXPECT_TRUE(cpu_share({0, 1}, 0, 3).empty());
  EXPECT_TRUE(cpu_share({}, 0, 1).empty());
}

TEST(CpuShare, KnowsWhatThisProcessMayUse) {
  const Cpus cpus = available_cpus();
  cpu_set_t mask;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(mask), &mask), 0);
  EXPECT_EQ(static_cast<int>(cpus.size()), CPU_COUNT(&mask));
  EXPECT_GE(usable_cpu_count(), 1);
  EXPECT_LE(usable_cpu_count(), static_cast<int>(cpus.size()));
}

TEST(WorkerCount, UnderstandsNumbersAndWords) {
  EXPECT_EQ(worker_count("3"), 3);
  EXPECT_EQ(worker_count("cpu"), usable_cpu_count());
  EXPECT_EQ(worker_count("auto"), gpu_count() > 0 ? gpu_count() : usable_cpu_count());
  EXPECT_EQ(worker_count("auto", {.gpus = 2, .cores = 7}), 2);
  EXPECT_EQ(worker_count("auto", {.gpus = 0, .cores = 7}), 7);
  EXPECT_EQ(worker_count("cpu", {.gpus = 2, .cores = 7}), 7);
  for (const char* bad : {"", "0", "-1", "two", "2x", "1.5", "99999", "9999999999999"}) {
    EXPECT_THROW(worker_count(bad), InvalidArgument) << bad;
  }
}

TEST(WorkerCount, L2ACrowdIsNamedWithTheCores) {
  EXPECT_NO_THROW(check_crowd(8, 1));
  EXPECT_NO_THROW(check_crowd(16, 2));
  EXPECT_EQ(lockstep::testing::message_of<InvalidArgument>([] { check_crowd(1000, 2); }),
      "--nproc-per-node: 1000 ranks are too many for the 2 cores that may be used here; give 16 at "
      "most, or --oversubscribe as well if you mean it");
}

TEST(Processors, AreNoMoreThanSlurmGave) {
  const int usable = processors().cores;
  setenv("SLURM_CPUS_PER_TASK", "1", 1);
  EXPECT_EQ(processors().cores, 1);
  setenv("SLURM_CPUS_PER_TASK", "100000", 1);
  EXPECT_EQ(processors().cores, usable);
  unsetenv("SLURM_CPUS_PER_TASK");
}

TEST(WorkerCount, HasNoGpuWhenNoneIsVisible) {
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  EXPECT_EQ(worker_count("auto"), usable_cpu_count());
  EXPECT_THROW(worker_count("gpu"), InvalidArgument);
  unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST(LaunchOptions, RefuseWhatCannotWork) {
  EXPECT_NO_THROW(check_options({.program = "x", .arguments = {}, .output = {}}));
  const auto refused = [](auto change) {
    LaunchOptions options;
    change(options);
    EXPECT_THROW(check_options(options), InvalidArgument);
  };
  refused([](auto& options) { options.nodes = 0; });
  refused([](auto& options) { options.node_rank = 1; });
  refused([](auto& options) { options.node_rank = -1; });
  refused([](auto& options) { options.master_port = 70000; });
  refused([](auto& options) { options.nodes = 2; });  // and no port
  refused([](auto& options) { options.grace_period = std::chrono::milliseconds(-1); });
  refused([](auto& options) { options.output.shown_ranks = {1}; });
  refused([](auto& options) { options.max_restarts = -1; });
  refused([](auto& options) {
    options.nodes = 2;
    options.master_port = 29500;
    options.max_restarts = 1;
  });
}

TEST(Cgroup, FindsAKey) {
  const std::string events = "low 0\nhigh 0\nmax 17\noom 3\noom_kill 2\noom_group_kill 0\n";
  EXPECT_EQ(keyed_number(events, "oom_kill"), 2);
  EXPECT_EQ(keyed_number(events, "oom"), 3);
  EXPECT_EQ(keyed_number(events, "none"), std::nullopt);
  EXPECT_EQ(keyed_number("", "oom"), std::nullopt);
}

TEST(ProgramPath, LooksInPathThenHere) {
  EXPECT_EQ(find_program("sh", "/nowhere:/bin"), "/bin/sh");
  EXPECT_EQ(find_program("/bin/sh", ""), "/bin/sh");
}

TEST(ProgramPath, NamesWhatIsMissingOrCannotBeExecuted) {
  for (const char* bad : {"lockstep-no-such-program", "/no/such/program", "/etc", "/etc/passwd"}) {
    const auto call = [&] { find_program(bad, "/bin"); };
    EXPECT_THAT(lockstep::testing::message_of<InvalidArgument>(call), ::testing::HasSubstr(bad));
  }
}

}  // namespace
}  // namespace lockstep::launch
