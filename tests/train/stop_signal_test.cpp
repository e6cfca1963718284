// Each case in a process of its own, as a signal that came stays.

#include "lockstep/train/stop_signal.h"

#include <array>
#include <atomic>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace lockstep {
namespace {

using ::testing::ExitedWithCode;

TEST(StopSignalDeathTest, BeforeThereIsSomethingToSaveItEndsTheProcess) {
  for (const int signal : kStopSignals) {
    const auto stopped = [signal] {
      handle_stop_signals();
      ::raise(signal);
    };
    EXPECT_EXIT(stopped(), ExitedWithCode(75), "^lockstep: stopped by a signal; start it again");
  }
}

TEST(StopSignalDeathTest, OnlyRankZeroSaysSo) {
  const auto stopped = [] {
    ::setenv("RANK", "1", 1);
    handle_stop_signals();
    ::raise(SIGTERM);
  };
  EXPECT_EXIT(stopped(), ExitedWithCode(75), "^$");
}

TEST(StopSignalDeathTest, OneThatWasHeldIsAnswered) {
  const auto stopped = [] {
    hold_stop_signals();
    ::raise(SIGTERM);
    handle_stop_signals();
    ::_exit(0);
  };
  EXPECT_EXIT(stopped(), ExitedWithCode(75), "");
}

TEST(StopSignalDeathTest, IsOnlyNotedOnceThereIsSomethingToSave) {
  const auto stopped = [] {
    handle_stop_signals();
    let_stops_be_saved();
    ::raise(SIGUSR1);
    ::raise(SIGTERM);  // the same press
    ::_exit(stop_signal());
  };
  EXPECT_EXIT(stopped(), ExitedWithCode(SIGUSR1), "^$");
}

TEST(StopSignalDeathTest, IsIgnoredWhereItWasIgnored) {
  const auto stopped = [] {
    ::signal(SIGINT, SIG_IGN);
    handle_stop_signals();
    ::raise(SIGINT);
    ::_exit(stop_signal());
  };
  EXPECT_EXIT(stopped(), ExitedWithCode(0), "");
}

// Several threads take a signal in the same moment, as when a launcher and a scheduler send one.
[[noreturn]] void raise_in_threads() {
  handle_stop_signals();
  let_stops_be_saved();
  std::atomic<int> waiting{4};
  std::array<std::thread, 4> threads;
  for (std::thread& thread : threads) {
    thread = std::thread([&waiting] {
      for (--waiting; waiting > 0;) {
      }
      ::raise(SIGTERM);
    });
  }
  for (std::thread& thread : threads) thread.join();
  ::_exit(0);
}

TEST(StopSignal, OnesInTheSameMomentAreOne) {
  for (int round = 0; round < 300; ++round) {
    const pid_t child = ::fork();
    if (child == 0) raise_in_threads();
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status))
        << "killed by signal " << WTERMSIG(status) << " in round " << round;
  }
}

}  // namespace
}  // namespace lockstep
