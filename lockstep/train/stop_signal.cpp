#include "lockstep/train/stop_signal.h"

#include <atomic>
#include <cstdint>
#include <ctime>
#include <unistd.h>

#include "lockstep/core/environment.h"
#include "lockstep/core/exit_code.h"

namespace lockstep {
namespace {

constexpr std::int64_t kOnePress = 1'000'000'000;  // nanoseconds in which repeats count as one

std::atomic<std::int64_t> time_of_first{0};  // 0: none came
std::atomic<int> signal_that_came{0};
std::atomic<bool> stops_are_saved{false};
std::atomic<bool> speaks{true};
static_assert(std::atomic<std::int64_t>::is_always_lock_free);

std::int64_t now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

[[noreturn]] void end_at_once() {
  if (speaks) {
    [[maybe_unused]] const ssize_t written =
        ::write(STDERR_FILENO, kStoppedText, sizeof(kStoppedText) - 1);
  }
  ::_exit(static_cast<int>(ExitCode::kStopped));
}

// Nothing here but what a signal handler may do. Threads may be here at the same time: the time,
// by which the others tell a second press, is there with the first look at it.
void note(int signal) {
  std::int64_t first = 0;
  if (time_of_first.compare_exchange_strong(first, now())) {
    signal_that_came = signal;
    if (!stops_are_saved) end_at_once();
    return;
  }
  if (now() - first < kOnePress) return;
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void change_mask(int how) {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : kStopSignals) ::sigaddset(&signals, signal);
  ::pthread_sigmask(how, &signals, nullptr);
}

}  // namespace

void hold_stop_signals() { change_mask(SIG_BLOCK); }

void handle_stop_signals() {
  speaks = environment("RANK").value_or("0") == "0";
  for (const int signal : kStopSignals) {
    struct sigaction before {};
    ::sigaction(signal, nullptr, &before);
    if (before.sa_handler == SIG_IGN) continue;
    struct sigaction action {};
    action.sa_handler = note;
    action.sa_flags = SA_RESTART;
    ::sigemptyset(&action.sa_mask);
    ::sigaction(signal, &action, nullptr);
  }
  change_mask(SIG_UNBLOCK);
}

void let_stops_be_saved() { stops_are_saved = true; }

int stop_signal() { return signal_that_came.load(std::memory_order_relaxed); }

}  // namespace lockstep
