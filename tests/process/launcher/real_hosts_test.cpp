// Hosts by name, with a program in place of ssh that starts the command on this machine.

#include <fstream>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/process/command.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

class RealHosts : public ::testing::Test {
 protected:
  RealHosts() {
    std::ofstream(by()) << "#!/bin/sh\nname=$1\nshift\nON=$name exec sh -c \"$*\"\n";
    ::chmod(by().c_str(), 0755);
  }

  std::string by() const { return folder_.file("by"); }

  Words on_two(const std::string& script) const {
    return {"hosts", "--names", "red,me@blue", "--by", by(), "--", "sh", "-c", script};
  }

  TemporaryFolder folder_;
};

TEST_F(RealHosts, RunTheCommandByTheNamedProgram) {
  const auto run = run_command(
      on_two("echo \"it's\" $ON, $PET_NODE_RANK of $PET_NNODES at $PET_MASTER_ADDR, $OMP_TEST"),
      {"OMP_TEST=travels"});
  EXPECT_EQ(run.code(), 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("it's red, 0 of 2 at red, travels\n"));
  EXPECT_THAT(run.out, HasSubstr("[host 1] it's me@blue, 1 of 2 at red, travels\n"));
}

TEST_F(RealHosts, AreToldTheSecretByNoCommandLine) {
  const std::string secret = "of-the-test-" + std::to_string(::getpid());
  Command run(on_two("echo $LOCKSTEP_SECRET $PET_NODE_RANK; exec sleep 600"),
      {"LOCKSTEP_SECRET=" + secret});
  const std::string out = run.wait_for_lines(2);
  EXPECT_THAT(out, HasSubstr(secret + " 0\n"));
  EXPECT_THAT(out, HasSubstr(secret + " 1\n"));
  EXPECT_TRUE(processes_with(secret).empty()) << "all users may read these";
}

TEST_F(RealHosts, GiveTheirCode) { EXPECT_EQ(run_command(on_two("exit 6")).code(), 6); }

TEST_F(RealHosts, EndTheCommandWhenTheLauncherIsKilled) {
  Command run(on_two("echo pid $$; while :; do sleep 0.01; done"));
  std::string text = run.wait_for_lines(2);
  const auto pids = numbers_after("pid", text);
  ASSERT_EQ(pids.size(), 2U);
  run.signal(SIGKILL);
  EXPECT_TRUE(all_end(pids));
  run.wait();
}

TEST_F(RealHosts, SayWhichProgramIsMissing) {
  const auto run = run_command({"hosts", "--names", "red", "--by", "/no/such/ssh", "--", "true"});
  EXPECT_EQ(run.code(), 2);
  EXPECT_THAT(run.err, HasSubstr("/no/such/ssh"));
}

}  // namespace
}  // namespace lockstep::testing
