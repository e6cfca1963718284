#include "lockstep/launch/launch_options.h"

#include <fstream>
#include <gmock/gmock.h>
#include <stdlib.h>

#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/cpu_share.h"
#include "lockstep/core/error.h"
#include "lockstep/launch/child_process.h"

namespace lockstep::launch {
namespace {

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

TEST(LaunchOptions, AFolderForLogsMayHoldThoseOfOtherNodes) {
  const lockstep::testing::TemporaryFolder folder;
  std::ofstream(folder.file("rank-0.log")) << "of another node\n";
  LaunchOptions options;
  options.output.log_dir = folder.str();
  EXPECT_THROW(check_options(options), InvalidArgument) << "it may be of another run";
  options.rendezvous.emplace();
  EXPECT_NO_THROW(check_options(options)) << "a node that joins";
  options.rendezvous.reset();
  options.nodes = 2;
  options.master_port = 29500;
  EXPECT_NO_THROW(check_options(options)) << "nodes with fixed numbers";
  options.nodes = 1;
  options.output.append = true;
  EXPECT_NO_THROW(check_options(options)) << "a run that goes on";
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
