#include "lockstep/parallel/place/place.h"

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <pthread.h>
#include <sched.h>
#include <set>
#include <system_error>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "lockstep/core/cpu_share.h"
#include "lockstep/core/error.h"
#include "lockstep/device/accelerator.h"

namespace lockstep::place {

std::vector<std::vector<int>> divide_cores(const std::vector<int>& cores, int count) {
  check(count >= 1, "divide_cores: the number of sets must be at least 1: ", count);
  check(!cores.empty(), "divide_cores: there are no cores");
  const auto sets = static_cast<std::size_t>(count);
  std::vector<std::vector<int>> divided;
  if (cores.size() < sets) {
    for (std::size_t i = 0; i < sets; ++i) divided.push_back({cores[i % cores.size()]});
    return divided;
  }
  auto next = cores.begin();
  for (std::size_t i = 0; i < sets; ++i) {
    const std::size_t size = cores.size() / sets + (i < cores.size() % sets ? 1 : 0);
    const auto end = next + static_cast<std::ptrdiff_t>(size);
    divided.emplace_back(next, end);
    next = end;
  }
  return divided;
}

std::string core_ranges(std::vector<int> cores) {
  std::sort(cores.begin(), cores.end());
  std::string text;
  for (std::size_t first = 0; first < cores.size();) {
    std::size_t last = first;
    while (last + 1 < cores.size() && cores[last + 1] == cores[last] + 1) ++last;
    text += concat(text.empty() ? "" : ",", cores[first]);
    if (last > first) text += concat("-", cores[last]);
    first = last + 1;
  }
  return text;
}

}  // namespace lockstep::place

namespace lockstep {
namespace {

// About ten microseconds: short enough to leave the cores to other threads in a longer wait.
constexpr int kSpins = 300;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

void name_this_thread(const std::string& name) {
  constexpr std::size_t kLongest = 15;  // the kernel's limit
  ::pthread_setname_np(::pthread_self(), name.substr(0, kLongest).c_str());
}

void pin_this_thread(const Place& place) {
  if (place.cores.empty() || !place.is_pinned) return;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  for (const int core : place.cores) CPU_SET(static_cast<std::size_t>(core), &mask);
  const int error = ::pthread_setaffinity_np(::pthread_self(), sizeof(mask), &mask);
  if (error != 0) {
    throw std::system_error(
        error, std::generic_category(), concat("PlaceWorker: pin to ", describe(place)));
  }
}

// A thread that asks for the first time gets the number that was set last in any thread: ask first.
void use_threads(int count) {
  (void)at::get_num_threads();
  at::set_num_threads(count);
}

/// Undoes what setting the number of threads in a worker does to threads that begin later.
class KeepNumberOfThreads {
 public:
  KeepNumberOfThreads() : lock_(mutex()), number_(at::get_num_threads()) {}
  ~KeepNumberOfThreads() { at::set_num_threads(number_); }
  KeepNumberOfThreads(const KeepNumberOfThreads&) = delete;
  KeepNumberOfThreads& operator=(const KeepNumberOfThreads&) = delete;

 private:
  static std::mutex& mutex() {
    static std::mutex mutex;
    return mutex;
  }

  std::lock_guard<std::mutex> lock_;
  int number_;
};

void check_cores(const Place& place) {
  for (const int core : place.cores) {
    check(core >= 0 && core < CPU_SETSIZE, "PlaceWorker: there is no core ", core);
  }
}

std::vector<c10::Stream> current_streams() {
  std::vector<c10::Stream> streams;
  const auto type = accelerator_type();
  const int devices = type ? device_count(*type) : 0;
  for (int index = 0; index < devices; ++index) {
    const c10::Device device(*type, static_cast<c10::DeviceIndex>(index));
    streams.push_back(c10::impl::getDeviceGuardImpl(*type)->getStream(device));
  }
  return streams;
}

}  // namespace

std::vector<Place> cpu_places(int count) {
  check(count >= 1, "cpu_places: the number of places must be at least 1: ", count);
  const std::vector<int> available = available_cpus();
  const bool has_own_cores = static_cast<std::size_t>(count) <= available.size();
  std::vector<Place> places;
  for (auto& cores : place::divide_cores(available, count)) {
    places.push_back({torch::kCPU, std::move(cores), has_own_cores});
  }
  return places;
}

std::vector<Place> device_places(torch::DeviceType type) {
  check(type != torch::kCPU,
      "device_places: the CPU is one device; cut its cores into places with cpu_places(count)");
  const std::string reason = reason_against(type);
  check(reason.empty(), "device_places: there is no device of type ", device_type_name(type), ": ",
      reason, "; use cpu_places(count)");
  std::vector<Place> places;
  for (int index = 0; index < device_count(type); ++index) {
    places.push_back({torch::Device(type, static_cast<torch::DeviceIndex>(index)), {}});
  }
  return places;
}

bool oversubscribed(const std::vector<Place>& places) {
  std::set<int> cores;
  std::set<std::string> devices;
  for (const Place& place : places) {
    for (const int core : place.cores) {
      if (!cores.insert(core).second) return true;
    }
    if (!place.device.is_cpu() && !devices.insert(place.device.str()).second) return true;
  }
  return false;
}

std::string describe(const Place& place) {
  const std::string device = place.device.str();
  if (place.cores.empty()) return device;
  const char* word = place.cores.size() == 1 ? " core " : " cores ";
  return device + word + place::core_ranges(place.cores);
}

PlaceWorker::PlaceWorker(Place place, const std::string& name) : place_(std::move(place)) {
  check_cores(place_);
  const KeepNumberOfThreads keep;
  thread_ = std::thread([this] { run(); });
  try {
    start(name);
  } catch (...) {
    set(State::kStopped);
    thread_.join();
    throw;
  }
}

PlaceWorker::~PlaceWorker() {
  wait_while(State::kWorking);
  set(State::kStopped);
  thread_.join();
}

void PlaceWorker::start(const std::string& name) {
  const int threads = threads_on(static_cast<int>(place_.cores.size()));
  begin([this, name, threads] {
    name_this_thread(name);
    pin_this_thread(place_);
    if (!place_.cores.empty()) use_threads(threads);
    use_device(place_.device);
  });
  wait();
}

void PlaceWorker::begin(std::function<void()> task) {
  check(state_.load(std::memory_order_acquire) == State::kIdle,
      "PlaceWorker: the task before has not been waited for");
  task_ = std::move(task);
  set(State::kWorking);
}

void PlaceWorker::wait() {
  if (wait_while(State::kWorking) == State::kIdle) return;
  const auto exception = std::exchange(exception_, nullptr);
  state_.store(State::kIdle, std::memory_order_release);
  if (exception) std::rethrow_exception(exception);
}

void PlaceWorker::run() {
  for (;;) {
    if (wait_while_unemployed() == State::kStopped) return;
    do_task();
    set(State::kDone);
  }
}

void PlaceWorker::do_task() {
  try {
    task_();
  } catch (...) {
    exception_ = std::current_exception();
  }
  // What a task captured must be gone when its end is announced.
  task_ = nullptr;
}

void PlaceWorker::set(State state) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    state_.store(state, std::memory_order_release);
  }
  changed_.notify_all();
}

PlaceWorker::State PlaceWorker::wait_while(State state) {
  for (int i = 0; i < kSpins; ++i) {
    const State now = state_.load(std::memory_order_acquire);
    if (now != state) return now;
    pause();
  }
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return state_.load(std::memory_order_relaxed) != state; });
  return state_.load(std::memory_order_relaxed);
}

PlaceWorker::State PlaceWorker::wait_while_unemployed() {
  for (;;) {
    for (const State unemployed : {State::kDone, State::kIdle}) {
      const State now = wait_while(unemployed);
      if (now == State::kWorking || now == State::kStopped) return now;
    }
  }
}

ThreadModes::ThreadModes()
    : autocast_cache_(at::autocast::is_autocast_cache_enabled()), streams_(current_streams()) {
  for (const auto device : at::autocast::_AUTOCAST_SUPPORTED_DEVICES) {
    autocast_types_.emplace_back(device, at::autocast::get_autocast_dtype(device));
  }
  std::fegetenv(&arithmetic_);
}

void ThreadModes::install_what_the_state_lacks() const {
  for (const auto& [device, type] : autocast_types_) {
    at::autocast::set_autocast_dtype(device, type);
  }
  at::autocast::set_autocast_cache_enabled(autocast_cache_);
  for (const c10::Stream& stream : streams_)
    c10::impl::getDeviceGuardImpl(stream.device_type())->exchangeStream(stream);
  std::fesetenv(&arithmetic_);
}

// Whether autocast is on is a dispatch key, which the state carries.
ThreadModes::Scope::Scope(const ThreadModes& modes) : guard_(modes.state_) {
  modes.install_what_the_state_lacks();
}

ThreadModes::Scope::~Scope() { outer_.install_what_the_state_lacks(); }

}  // namespace lockstep
