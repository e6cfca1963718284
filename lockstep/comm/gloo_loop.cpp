#include "lockstep/comm/gloo_loop.h"

#include <filesystem>
#include <fstream>
#include <sched.h>
#include <string>
#include <sys/types.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

constexpr const char* kTasks = "/proc/self/task";
constexpr const char* kLoop = "gloo_tcp_loop";
constexpr auto kSpan = std::chrono::milliseconds(50);

// Where the kernel refuses, such as in a sandbox, collectives are slower and nothing else.
void schedule(pid_t thread, int policy) {
  const sched_param none = {};
  static_cast<void>(::sched_setscheduler(thread, policy, &none));
}

/// Calls `visit` with the id and the name of each thread of this process.
template <typename Visit>
void for_each_thread(Visit visit) {
  std::error_code error;
  const std::filesystem::directory_iterator end;
  for (std::filesystem::directory_iterator task(kTasks, error); !error && task != end;
       task.increment(error)) {
    std::string name;
    std::getline(std::ifstream(task->path() / "comm"), name);
    visit(static_cast<pid_t>(std::stol(task->path().filename())), name);
  }
}

// Nothing where the thread has ended, or the kernel does not count.
std::optional<CoreTimes> times_of(pid_t thread) {
  std::ifstream file(concat(kTasks, "/", thread, "/schedstat"));
  long long ran = 0, waited = 0;
  if (!(file >> ran >> waited)) return std::nullopt;
  return CoreTimes{std::chrono::nanoseconds(ran), std::chrono::nanoseconds(waited)};
}

std::optional<CoreTimes> core_times(pid_t rank) {
  auto sum = times_of(rank);
  if (!sum) return std::nullopt;
  for_each_thread([&](pid_t thread, const std::string& name) {
    if (name != kLoop && name != "pt_gloo_runloop") return;
    const CoreTimes times = times_of(thread).value_or(CoreTimes{});
    sum->ran += times.ran;
    sum->waited += times.waited;
  });
  return sum;
}

void schedule_loops(int policy) {
  for_each_thread([&](pid_t thread, const std::string& name) {
    if (name == kLoop) schedule(thread, policy);
  });
}

}  // namespace

BatchThreads::BatchThreads() : was_usual_(::sched_getscheduler(0) == SCHED_OTHER) {
  if (was_usual_) schedule(0, SCHED_BATCH);
}

BatchThreads::~BatchThreads() {
  if (was_usual_) schedule(0, SCHED_OTHER);
}

bool others_want_core(const CoreTimes& begin, const CoreTimes& end) {
  const auto waited = end.waited - begin.waited, ran = end.ran - begin.ran;
  return 5 * waited > 6 * ran;
}

std::function<std::optional<CoreTimes>()> core_times_of_this_thread() {
  return [rank = ::gettid()] { return core_times(rank); };
}

LoopPolicy::LoopPolicy(std::function<std::optional<CoreTimes>()> times)
    : times_(std::move(times)),
      adapts_(::sched_getscheduler(0) == SCHED_OTHER),
      at_begin_(times_()) {}

void LoopPolicy::adapt() {
  const auto now = Clock::now();
  if (!adapts_ || !at_begin_ || now - begin_ < kSpan) return;
  const auto times = times_();
  if (!times) return;
  const bool is_wanted = others_want_core(*at_begin_, *times);
  if (is_wanted != is_wanted_) schedule_loops(is_wanted ? SCHED_OTHER : SCHED_BATCH);
  is_wanted_ = is_wanted;
  begin_ = now;
  at_begin_ = times;
}

}  // namespace lockstep
