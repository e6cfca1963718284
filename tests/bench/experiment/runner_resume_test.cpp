// A bench that was stopped, in any way, goes on where it was.

#include <algorithm>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/experiment/shell_study.h"
#include "tests/support/temporary_folder.h"

#include "bench/experiment/sample_log.h"
#include "lockstep/core/error.h"
#include "lockstep/launch/child_process.h"

namespace lockstep::bench {
namespace {

using lockstep::testing::TemporaryFolder;
using ::testing::Contains;
using ::testing::HasSubstr;
using testing::names;
using testing::shell_cell;
using testing::shell_study;
using testing::ShellRunner;
using testing::text_of;
using testing::value_cell;

constexpr int kRounds = 3;

/// Makes a study whose samples each add a letter to a file; when it has so many, one sends a signal
/// to the bench, once, and goes on for long, as does a process that it started.
Study striking_study(
    const std::filesystem::path& folder, int strike_at, const std::string& signal) {
  const std::string count = (folder / "count").string();
  const std::string pid = (folder / "pid").string();
  const std::string script = concat("printf x >> ", count, "; echo 1 > \"$RUN/value\"; ",
      "if test $(wc -c < ", count, ") = ", strike_at, "; then sleep 600 & echo $! > ", pid,
      "; kill -", signal, " $PPID; wait; fi");
  return shell_study(
      {shell_cell("a", script), shell_cell("b", script), shell_cell("c", script)}, kRounds);
}

/// Runs a study in a process of its own and gives that process's wait status.
int run_in_child(const Study& study, const std::filesystem::path& output) {
  const pid_t child = ::fork();
  if (child == 0) {
    // What started the tests may have them ignored: nohup, a shell's background.
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, SIG_DFL);
    ShellRunner runner(output);
    ::_exit(runner.run(study).exit_code());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

std::vector<std::string> undisturbed_names() {
  const TemporaryFolder folder;
  ShellRunner runner(folder.path() / "out");
  return names(runner.run(striking_study(folder.path(), 0, "KILL")).samples);
}

/// Waits until the process of that id has gone: the guardian kills it soon after the bench, and it
/// becomes our child.
bool is_gone(const std::filesystem::path& file) {
  const pid_t pid = std::stoi(text_of(file));
  for (int i = 0; i < 6000 && ::kill(pid, 0) == 0; ++i) {
    launch::reap_strays({});
    ::usleep(10000);
  }
  return ::kill(pid, 0) != 0;
}

// The same cells and rounds, in the same order, each once.
TEST(StoppedBench, GoesOnAfterAKillAtAnySample) {
  const auto expected = undisturbed_names();
  ASSERT_EQ(expected.size(), 3U * kRounds);
  const launch::Subreaper subreaper;
  for (int strike_at = 1; strike_at <= 3 * kRounds; ++strike_at) {
    const TemporaryFolder folder;
    const Study study = striking_study(folder.path(), strike_at, "KILL");
    const int status = run_in_child(study, folder.path() / "out");
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
    EXPECT_TRUE(is_gone(folder.path() / "pid")) << "the sample dies with the bench";
    ShellRunner runner(folder.path() / "out");
    EXPECT_EQ(read_samples(folder.path() / "out/samples.jsonl").samples.size(),
        static_cast<std::size_t>(strike_at - 1));
    const RunnerResult result = runner.run(study);
    EXPECT_EQ(result.exit_code(), 0);
    EXPECT_EQ(names(result.samples), expected) << strike_at;
  }
}

TEST(StoppedBench, EndsCleanlyAtASignalAndGoesOn) {
  for (const std::string& name : {std::string("INT"), std::string("TERM"), std::string("HUP")}) {
    const TemporaryFolder folder;
    const Study study = striking_study(folder.path(), 4, name);
    const int status = run_in_child(study, folder.path() / "out");
    const int signal = launch::signal_number(name).value();
    ASSERT_TRUE(WIFEXITED(status)) << status;
    EXPECT_EQ(WEXITSTATUS(status), 128 + signal);
    EXPECT_NE(::kill(std::stoi(text_of(folder.path() / "pid")), 0), 0) << "gone before the bench";
    EXPECT_EQ(read_samples(folder.path() / "out/samples.jsonl").samples.size(), 3U);
    for (const auto& entry :
        std::filesystem::directory_iterator(folder.path() / "out/runs/shell")) {
      EXPECT_FALSE(entry.is_directory()) << entry.path();
    }
    ShellRunner runner(folder.path() / "out");
    EXPECT_EQ(names(runner.run(study).samples), undisturbed_names());
    EXPECT_THAT(runner.said, Contains("shell: has 3 samples from before; 6 are missing"));
  }
}

TEST(StoppedBench, GoesOnAfterATornLine) {
  const TemporaryFolder folder;
  const Study study = shell_study({value_cell("a", 1), value_cell("b", 1)}, 2);
  ShellRunner runner(folder.path());
  const auto whole = names(runner.run(study).samples);
  const auto path = folder.path() / "samples.jsonl";
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 5);
  runner.said.clear();
  EXPECT_EQ(names(runner.run(study).samples), whole);
  EXPECT_THAT(
      runner.said[0], HasSubstr("samples.jsonl: line 4: incomplete because its writer died"));
}

TEST(FinishedBench, MeasuresNothingAgain) {
  const TemporaryFolder folder;
  const Study study = striking_study(folder.path(), 0, "KILL");
  ShellRunner runner(folder.path() / "out");
  const auto first = runner.run(study).samples;
  EXPECT_EQ(runner.run(study).samples, first);
  EXPECT_EQ(text_of(folder.path() / "count").size(), 3U * kRounds);
  Study longer = study;
  longer.rounds = kRounds + 1;
  EXPECT_EQ(runner.run(longer).samples.size(), 3U * (kRounds + 1)) << "more rounds add to it";
}

}  // namespace
}  // namespace lockstep::bench
