// A pipeline over two hosts that a slow link connects: it trains as the serial model, and ends when
// the other host is lost or silent. This needs root.

#include <csignal>
#include <gmock/gmock.h>

#include "tests/process/command.h"
#include "tests/process/launcher/made_hosts.h"

#include "lockstep/core/environment.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

class PipelineOverHosts : public MadeHosts {
 protected:
  static Words probe(const std::string& arguments) {
    return words("hosts --count 2 --rate 20mbit -- lockstep run --nproc-per-node 1 -- " +
                 *environment("LOCKSTEP_BINARY_DIR") + "/pipeline_probe " + arguments);
  }

  /// Sends a signal to rank 1 when the pipeline is at work, and returns how the run ended.
  static Ended after(int signal, const std::string& timeout) {
    const std::string mark =
        "LOCKSTEP_TEST_MARK=pipeline-" + std::to_string(::getpid()) + "-" + std::to_string(signal);
    Command run(probe("endless " + timeout), {mark});
    run.wait_for_lines(4);
    const auto pids = processes_with_variable(mark);
    for (const pid_t pid : pids) {
      if (variable_of(pid, "RANK") == "1") ::kill(pid, signal);
    }
    Ended ended = run.wait();
    EXPECT_TRUE(all_end(pids));
    return ended;
  }
};

TEST_F(PipelineOverHosts, TrainsAsTheSerialModel) {
  const Ended run = run_command(probe("equal 60")).with_code(0);
  EXPECT_THAT(run.out, HasSubstr("rank 0: as the serial model"));
  EXPECT_THAT(run.out, HasSubstr("rank 1: as the serial model"));
}

TEST_F(PipelineOverHosts, ARankThatDiesEndsTheOther) {
  const Ended run = after(SIGKILL, "100");
  EXPECT_THAT(run.out, HasSubstr("lost: "));
  EXPECT_THAT(run.out, HasSubstr("another rank has ended or given up, or is out of reach"));
  EXPECT_NE(run.code(), 0);
}

TEST_F(PipelineOverHosts, ARankThatIsSilentEndsTheOtherAtTheDeadline) {
  const Ended run = after(SIGSTOP, "5");
  EXPECT_THAT(run.out, HasSubstr("out of time: "));
  EXPECT_EQ(run.code(), 5) << run.err;
}

}  // namespace
}  // namespace lockstep::testing
