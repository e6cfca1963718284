#include "lockstep/train/stop_signal.h"

#include <atomic>
#include <csignal>
#include <cstdint>
#include <ctime>

namespace lockstep {
namespace {

constexpr std::int64_t kOnePress = 1'000'000'000;  // nanoseconds in which repeats count as one

std::atomic<int> signal_that_came{0};
std::atomic<std::int64_t> time_of_it{0};
static_assert(std::atomic<std::int64_t>::is_always_lock_free);

std::int64_t now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// Nothing here but what a signal handler may do.
void note(int signal) {
  int none = 0;
  if (signal_that_came.compare_exchange_strong(none, signal)) {
    time_of_it = now();
    return;
  }
  if (now() - time_of_it < kOnePress) return;
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

}  // namespace

void handle_stop_signals() {
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) {
    struct sigaction before {};
    ::sigaction(signal, nullptr, &before);
    if (before.sa_handler == SIG_IGN) continue;
    struct sigaction action {};
    action.sa_handler = note;
    action.sa_flags = SA_RESTART;
    ::sigemptyset(&action.sa_mask);
    ::sigaction(signal, &action, nullptr);
  }
}

int stop_signal() { return signal_that_came.load(std::memory_order_relaxed); }

}  // namespace lockstep
