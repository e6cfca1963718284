#include "lockstep/comm/store.h"

#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <sys/file.h>
#include <thread>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "lockstep/comm/ask_store.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file_descriptor.h"
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

}  // namespace

Store memory_store() { return c10::make_intrusive<c10d::HashStore>(); }

Store file_store(const std::string& path, int users) {
  // c10d would wait for minutes for a folder that does not exist.
  const FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file) throw_errno("store: open the file in which ranks meet", path);
  return c10::make_intrusive<MeetingFile>(path, users);
}

std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

void refuse(const Store& store, const std::string& text) {
  store->set(kRefused, bytes_of(text));
  store->add(kReaders, 1);
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

}  // namespace lockstep
