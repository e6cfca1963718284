#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
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

/// The ranks of a communicator.
struct Ring {
  std::mutex mutex;
  std::condition_variable joined;
  int ranks = 0, present = 0;
  bool is_aborted = false;                 // by one of them: no call is waited for any more
  std::map<MeetingKey, Meeting> meetings;  // that are not complete
};

/// Takes part in a meeting of `ranks`, as number `part`: the stream goes on when the kernel has
/// run, at the mark that is returned.
Mark meet(const std::shared_ptr<Ring>& ring, const MeetingKey& key, int ranks, int part,
    const Part& given, std::size_t stream, const Kernel& kernel);

/// Lets the calls between these of a thread begin together.
void begin_group();
void end_group();

}  // namespace lockstep::emulated
