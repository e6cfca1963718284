#include "tests/accelerator/nccl/ring.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

#include "tests/accelerator/late_call.h"
#include "tests/accelerator/runtime.h"

namespace lockstep::emulated {
namespace {

/// A file as other processes find it.
struct SharedFile {
  pid_t process;
  int file;
};

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

SharedFile file_named(const nccl::UniqueId& name) {
  SharedFile file{};
  std::memcpy(&file, name.bytes, sizeof file);
  return file;
}

std::byte* map_file_of(pid_t process, int file, std::size_t bytes) {
  const std::string path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(file);
  const int own = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (own < 0) fail("emulated nccl: open another rank's memory");
  void* const begin =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, own, 0);
  ::close(own);
  if (begin == MAP_FAILED) fail("emulated nccl: map another rank's memory");
  return static_cast<std::byte*>(begin);
}

DeviceMemory& current_memory() { return Runtime::get().memory(Runtime::get().current_device()); }

}  // namespace

Mapping::Mapping(pid_t process, int file, std::size_t bytes)
    : bytes_(bytes), begin_(map_file_of(process, file, bytes)) {}

Mapping::~Mapping() { ::munmap(begin_, bytes_); }

static_assert(std::atomic<std::int64_t>::is_always_lock_free, "as between processes");

struct Ring::Shared {
  std::atomic<int> present;
  std::atomic<bool> is_aborted;
  std::array<SharedFile, kMostRanks> devices;
  Place collectives;
  std::array<std::array<Place, kMostRanks>, kMostRanks> messages;
};

nccl::UniqueId Ring::make() {
  const int file = ::memfd_create("emulated nccl", MFD_CLOEXEC);
  if (file < 0 || ::ftruncate(file, sizeof(Shared)) != 0) fail("emulated nccl: make shared memory");
  const SharedFile made{::getpid(), file};
  nccl::UniqueId name{};
  std::memcpy(name.bytes, &made, sizeof made);
  return name;
}

Ring::Ring(const nccl::UniqueId& name, int ranks, int rank)
    : rank_(rank),
      ranks_(ranks),
      file_(rank == 0 ? file_named(name).file : -1),
      memory_(file_named(name).process, file_named(name).file, sizeof(Shared)),
      own_(current_memory().begin()) {
  shared().devices[static_cast<std::size_t>(rank)] = {::getpid(), current_memory().file()};
  ++shared().present;
}

// Rank 0 made the memory, whose name nobody needs any more.
bool Ring::is_complete() {
  if (!devices_.empty()) return true;
  if (shared().present < ranks_) return false;
  std::vector<std::unique_ptr<Mapping>> devices;
  for (const SharedFile& device : shared().devices)
    if (std::ssize(devices) < ranks_)
      devices.push_back(
          std::make_unique<Mapping>(device.process, device.file, DeviceMemory::kCapacity));
  devices_ = std::move(devices);
  if (file_ >= 0) ::close(std::exchange(file_, -1));
  return true;
}

void Ring::abort() { shared().is_aborted = true; }

bool Ring::is_aborted() const { return shared().is_aborted; }

Place& Ring::collectives() const { return shared().collectives; }

Place& Ring::messages(int from, int to) const {
  return shared().messages[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
}

std::int64_t Ring::offset_of(const void* address) const {
  return address == nullptr ? -1 : static_cast<const std::byte*>(address) - own_;
}

Part Ring::part_of(const Place::Given& given) const {
  std::byte* const begin = devices_[static_cast<std::size_t>(given.rank)]->begin();
  const auto at = [&](std::int64_t offset) { return offset < 0 ? nullptr : begin + offset; };
  return {at(given.input), at(given.output)};
}

void Ring::come(const Call& call) const {
  if (is_aborted()) return;
  Place& place = *call.place;
  place.given[static_cast<std::size_t>(call.part)] = {
      rank_, offset_of(call.given.input), offset_of(call.given.output)};
  if (++place.come < (call.number + 1) * call.parts) return;
  Parts parts;
  for (const Place::Given& given : place.given)
    if (std::ssize(parts) < call.parts) parts.push_back(part_of(given));
  const KernelDispatch dispatch;
  call.kernel(parts);
  ++place.done;
}

namespace {

struct LaunchedCall {
  std::shared_ptr<Ring> ring;
  Place* place;
  std::int64_t number, begin;  ///< which call, and the parts that had come to the calls before
  Mark come, end;
};

/// A thread that does what devices do while nobody in their process waits for them: comes to the
/// calls that other ranks have come to, and ends those whose kernels have run.
class Engine {
 public:
  static Engine& get() {
    static Engine* const kEngine = new Engine;  // runs until the process ends
    return *kEngine;
  }

  void add(LaunchedCall call) {
    const std::lock_guard lock(mutex_);
    added_.push_back(std::move(call));
    is_added_.notify_one();
  }

 private:
  Engine() {
    std::thread([this] { run(); }).detach();
  }

  [[noreturn]] void run() {
    constexpr auto kPause = std::chrono::microseconds(100);
    for (;;) {
      take_added();
      if (std::erase_if(calls_, &has_ended) == 0) std::this_thread::sleep_for(kPause);
    }
  }

  void take_added() {
    std::unique_lock lock(mutex_);
    if (calls_.empty()) is_added_.wait(lock, [this] { return !added_.empty(); });
    std::ranges::move(added_, std::back_inserter(calls_));
    added_.clear();
  }

  static bool has_ended(const LaunchedCall& call) {
    if (call.place->come > call.begin) come(call);
    if (call.place->done <= call.number && !call.ring->is_aborted()) return false;
    streams().close(call.end.stream);
    return true;
  }

  // Whoever waits for the stream is told what was thrown.
  static void come(const LaunchedCall& call) try {
    streams().advance(call.come);
  } catch (const std::exception&) {
    call.ring->abort();
  }

  std::mutex mutex_;
  std::condition_variable is_added_;
  std::vector<LaunchedCall> added_, calls_;
};

void launch_at(Mark arrival, const std::shared_ptr<Ring>& ring, const PendingCall& pending) {
  const auto& [call, stream, end] = pending;
  streams().wait(end.stream, arrival);
  streams().enqueue(end.stream, [ring, call = call] { ring->come(call); });
  Engine::get().add(
      {ring, call.place, call.number, call.number * call.parts, streams().mark(end.stream), end});
}

}  // namespace

void Launches::add(PendingCall call) {
  call.call.place->connected |= 1U << static_cast<unsigned>(call.call.part);
  calls_.push_back(std::move(call));
}

bool Launches::is_connected() const {
  return std::ranges::all_of(calls_, [](const PendingCall& pending) {
    return std::popcount(pending.call.place->connected.load()) == pending.call.parts;
  });
}

// Calls of a group begin together.
bool Launches::try_launch() {
  if (!is_connected()) return false;
  std::vector<Mark> arrivals;
  for (const PendingCall& call : calls_) arrivals.push_back(streams().mark(call.stream));
  for (std::size_t i = 0; i < calls_.size(); ++i) launch_at(arrivals[i], ring_, calls_[i]);
  for (const PendingCall& call : calls_) streams().wait(call.stream, call.end);
  calls_.clear();
  return true;
}

bool Launches::launch() {
  constexpr auto kPause = std::chrono::milliseconds(1);
  while (!try_launch()) {
    if (ring_->is_aborted()) return false;
    std::this_thread::sleep_for(kPause);
  }
  return true;
}

}  // namespace lockstep::emulated
