#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/accelerator/streams.h"

namespace lockstep::emulated {

/// One rank's arguments of a call.
struct Part {
  const void* input = nullptr;
  void* output = nullptr;
};

using Parts = std::vector<Part>;
using Kernel = std::function<void(const Parts&)>;

/// A call that all its ranks take part in: its kernel runs when the streams of all have come to it.
struct Meeting {
  Mark end = {};
  Parts parts = {};
  int missing = 0;
};

/// Who meets, and how many times they have before.
using MeetingKey = std::tuple<int, int, std::int64_t>;

/// Who are connected by their first meeting.
using ConnectionKey = std::pair<int, int>;

/// The ranks of a communicator.
struct Ring {
  std::mutex mutex;
  std::condition_variable changed;
  int ranks = 0, present = 0;
  bool is_aborted = false;                      // by one: no call is waited for any more
  std::map<MeetingKey, Meeting> meetings;       // that are not complete
  std::map<ConnectionKey, std::set<int>> come;  // the parts that connect
};

/// A rank's part in a meeting that it has not gone to yet.
struct PendingCall {
  ConnectionKey connection;
  int part, parts;  ///< which of how many
  std::size_t stream;
  Mark end;
  std::function<void(Mark)> arrive;
};

/// Takes part in a meeting of `ranks`, as number `part`: once the call is launched, the stream goes
/// on when the kernel has run, at `end`.
PendingCall meet(const std::shared_ptr<Ring>& ring, const MeetingKey& key, int ranks, int part,
    const Part& given, std::size_t stream, const Kernel& kernel);

/// The calls that a rank has made and that are not on their streams yet: they come there together,
/// when those whom they meet for the first time have come, too.
class Launches {
 public:
  explicit Launches(std::shared_ptr<Ring> ring) : ring_(std::move(ring)) {}

  bool is_empty() const { return calls_.empty(); }
  void add(PendingCall call);

  /// Launches what can be; returns whether nothing is left.
  bool try_launch();

  /// Waits for the others as long as it takes. False if one gives up.
  bool launch();

 private:
  bool is_connected() const;

  std::shared_ptr<Ring> ring_;
  std::vector<PendingCall> calls_;
};

}  // namespace lockstep::emulated
