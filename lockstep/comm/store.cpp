#include "lockstep/comm/store.h"

#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <mutex>
#include <random>
#include <sys/file.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include <c10/util/Logging.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "lockstep/comm/ask_store.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file_descriptor.h"
#include "lockstep/core/process.h"
#include "lockstep/core/stopwatch.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

constexpr const char* kRefused = "refused";          // the key of a text
constexpr const char* kReaders = "refusal-readers";  // and of how many know it

std::vector<std::uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

std::string key_of(const std::string& topic, int rank) { return concat(topic, "/", rank); }

std::string missing_ranks(const Store& store, const std::string& topic, int size) {
  std::vector<std::string> ranks;
  for (int rank = 0; rank < size; ++rank) {
    if (!store->check({key_of(topic, rank)})) ranks.push_back(std::to_string(rank));
  }
  return concat("rank ", joined(ranks), " of ", size);
}

std::string text_at(const Store& store, const std::string& key) {
  const auto bytes = store->get(key);
  return {bytes.begin(), bytes.end()};
}

[[noreturn]] void throw_refusal(const Store& store) {
  const std::string text = text_at(store, kRefused);
  store->add(kReaders, 1);
  throw InvalidArgument(text);
}

// Polls instead of waiting in the store, whose message names a key but no rank.
void await_keys(const Store& store, const std::vector<std::string>& keys,
    std::chrono::milliseconds timeout, const std::function<std::string()>& missing) {
  const Stopwatch stopwatch;
  while (!store->check(keys)) {
    if (store->check({kRefused})) throw_refusal(store);
    if (stopwatch.seconds() * 1000 > static_cast<double>(timeout.count())) {
      throw TimeoutError(concat("waited ", timeout.count(), " ms for ", missing()));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

/// Locks a folder from take() until it is destroyed. Any program may hold such a lock for long, so
/// it is tried for two seconds only.
class FolderLock {
 public:
  explicit FolderLock(std::string folder) : folder_(std::move(folder)) {}

 protected:
  void take() {
    descriptor_ = FileDescriptor(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!descriptor_) return;
    for (int turn = 0; turn < 2000 && ::flock(descriptor_.get(), LOCK_EX | LOCK_NB) != 0; ++turn)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

 private:
  std::string folder_;
  FileDescriptor descriptor_;
};

// FileStore's destructor counts in two steps who has left: of two that leave at once, neither may
// see that it is the last, and the file stays. The lock lets them leave one after the other; it is
// a base so that it outlives the store.
class MeetingFile final : private FolderLock, public c10d::FileStore {
 public:
  MeetingFile(const std::string& path, int users)
      : FolderLock(std::filesystem::path(path).parent_path()), FileStore(path, users) {}
  ~MeetingFile() override { take(); }

  // While one thread waits in it, others may call: it is a user of the file, and need not be two.
  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::intrusive_ptr<c10d::Store>::unsafe_reclaim_from_nonowning(this);
  }
};

constexpr int kSilent = 4;  // above FATAL

std::mutex log_mutex;
int log_silencers = 0;
int log_level_before = 0;

bool user_chose_the_level() { return environment("TORCH_CPP_LOG_LEVEL").has_value(); }

}  // namespace

QuietLog::QuietLog() {
  const std::lock_guard lock(log_mutex);
  if (log_silencers++ > 0 || user_chose_the_level()) return;
  log_level_before = std::exchange(FLAGS_caffe2_log_level, kSilent);
}

QuietLog::~QuietLog() {
  const std::lock_guard lock(log_mutex);
  if (--log_silencers > 0 || user_chose_the_level()) return;
  FLAGS_caffe2_log_level = log_level_before;
}

Store memory_store() { return c10::make_intrusive<c10d::HashStore>(); }

Store file_store(const std::string& path, int users) {
  // c10d would wait for minutes for a folder that does not exist.
  const FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file) throw_errno("store: open the file in which ranks meet", path);
  return c10::make_intrusive<MeetingFile>(path, users);
}

void refuse(const Store& store, const std::string& text) {
  store->set(kRefused, bytes_of(text));
  store->add(kReaders, 1);
  throw InvalidArgument(text);
}

void await_readers_of_refusal(const Store& store, int size) {
  constexpr double kLongest = 3, kAfterTheLast = 0.5;  // seconds
  const Stopwatch stopwatch;
  Stopwatch since_last;
  for (std::int64_t seen = 0; stopwatch.seconds() < kLongest;) {
    const std::int64_t readers = store->add(kReaders, 0);
    if (readers > seen) since_last.restart();
    seen = readers;
    if (seen >= size && since_last.seconds() > kAfterTheLast) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

std::string await_text(const Store& store, const std::string& key, const std::string& whose,
    std::chrono::milliseconds timeout) {
  await_keys(store, {key}, timeout, [&] { return whose; });
  return text_at(store, key);
}

std::vector<std::string> exchange_texts(const Store& store, const std::string& topic, int rank,
    int size, const std::string& text, std::chrono::milliseconds timeout) {
  return ask_store(topic, timeout, [=] {
    std::vector<std::string> keys, texts;
    for (int other = 0; other < size; ++other) keys.push_back(key_of(topic, other));
    store->set(keys[static_cast<std::size_t>(rank)], bytes_of(text));
    await_keys(store, keys, timeout, [&] { return missing_ranks(store, topic, size); });
    for (const std::string& key : keys) texts.push_back(text_at(store, key));
    return texts;
  });
}

namespace {

constexpr const char* kRollCall = "init_process_group: ";

/// Writes a value unless there is one, and returns what is there then.
std::string first_of(const Store& store, const std::string& key, const std::string& value) {
  return store->compareSet(key, "", value);
}

/// Returns what a message shows of a process.
std::string shown(const std::string& process) { return process.substr(0, process.find('\n')); }

void check_size(const Store& store, const Member& member, const std::string& size) {
  if (size == std::to_string(member.size)) return;
  refuse(store,
      concat(kRollCall, "rank ", member.rank, " (", shown(member.process), ") has a world of ",
          member.size, " ranks, rank 0 at ", member.place, " has one of ", size,
          "; start all with the same number of hosts and of ranks a host (WORLD_SIZE)"));
}

void check_alone(const Store& store, const Member& member) {
  const std::string first = first_of(store, concat("member-", member.rank), member.process);
  if (first == member.process) return;
  refuse(store, concat(kRollCall, "two processes are rank ", member.rank, " of the world at ",
                    member.place, ": ", shown(first), " and ", shown(member.process),
                    "; give each host a --node-rank, and each run a --master-port, of its own"));
}

// Rank 0 says which world it is.
void call_roll(const Store& store, const Member& member, std::chrono::milliseconds timeout) {
  const std::string own_run = member.run + ".";  // never empty
  const bool decides = member.rank == 0;
  const std::string run =
      decides ? first_of(store, "run", own_run) : await_text(store, "run", "rank 0", timeout);
  check(run == own_run, kRollCall, "rank ", member.rank, " (", shown(member.process),
      ") has met another run at ", member.place, "; give each run a --master-port of its own");
  const std::string size = decides ? first_of(store, "size", std::to_string(member.size))
                                   : await_text(store, "size", "rank 0", timeout);
  check_size(store, member, size);
  check_alone(store, member);
}

}  // namespace

std::string this_process() {
  static const std::string kProcess = [] {
    std::random_device random;
    // Containers may share a host's name and have processes of the same number.
    return concat("host ", host_name(), ", pid ", ::getpid(), "\n", random());
  }();
  return kProcess;
}

void check_one_world(const Store& store, const Member& member, std::chrono::milliseconds timeout) {
  ask_store("init_process_group", timeout, [=] {
    call_roll(store, member, timeout);
    return true;
  });
}

namespace {

constexpr const char* kInitMethod = "init_process_group: the init method ";

InitMethod tcp_method(const std::string& url, const std::string& rest) {
  const auto colon = rest.rfind(':');
  check(colon != std::string::npos && colon > 0, kInitMethod, url,
      " needs an address and a port: tcp://HOST:PORT");
  std::string host = rest.substr(0, colon);
  const bool bracketed = host.front() == '[' && host.back() == ']';
  check(bracketed || host.find(':') == std::string::npos, kInitMethod, url,
      " has an IPv6 address, which needs brackets: tcp://[::1]:29500");
  if (bracketed) host = host.substr(1, host.size() - 2);
  const int port = parse_number<int>(rest.substr(colon + 1)).value_or(0);
  check(0 < port && port < 65536, kInitMethod, url,
      " has no port between 1 and 65535: ", rest.substr(colon + 1));
  return {.kind = InitMethod::Kind::kTcp, .host = host, .port = port};
}

InitMethod file_method(const std::string& url, const std::string& path) {
  check(!path.empty() && path.front() == '/', kInitMethod, url,
      " needs an absolute path after two slashes, so three in all: file:///tmp/meeting");
  check(path.back() != '/', kInitMethod, url, " names a folder; the ranks meet in a file");
  return {.kind = InitMethod::Kind::kFile, .path = path};
}

}  // namespace

InitMethod parse_init_method(const std::string& url) {
  if (url.empty() || url == "env://") return {};
  check(url.find('?') == std::string::npos, kInitMethod, url,
      " has a question mark; give rank and world size as InitOptions, or by RANK and WORLD_SIZE");
  if (url.starts_with("tcp://")) return tcp_method(url, url.substr(6));
  if (url.starts_with("file://")) return file_method(url, url.substr(7));
  throw InvalidArgument(
      concat(kInitMethod, "must be env://, tcp://HOST:PORT or file:///PATH, not ", url));
}

}  // namespace lockstep
