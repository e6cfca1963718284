#include "bench/collectives/sweep.h"

#include <algorithm>
#include <set>

#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

constexpr std::int64_t kElementBytes = 4;  // of float32
constexpr std::int64_t kMostBytes = std::int64_t{1} << 36;
constexpr int kMostRepeats = 1'000'000;

std::int64_t whole_pieces(std::int64_t bytes, int ranks) {
  const std::int64_t piece = kElementBytes * ranks;
  return bytes / piece * piece;
}

template <typename Each>
bool has_twice(const std::vector<Each>& list) {
  return std::set<Each>(list.begin(), list.end()).size() < list.size();
}

// Of a backend that cannot stand beside others in one world.
void check_alone(const std::vector<std::string>& backends, const char* name, const char* reason) {
  const bool is_asked = std::find(backends.begin(), backends.end(), name) != backends.end();
  check(!is_asked || backends.size() == 1, "collectives: --backend ", name,
      " cannot be measured beside others, for ", reason, "; measure it by a command of its own");
}

void check_lists(const Sweep& sweep) {
  check(!sweep.collectives.empty(), "collectives: --op names no collective");
  check(!has_twice(sweep.collectives), "collectives: --op names one twice");
  check(!sweep.backends.empty(), "collectives: --backend names no backend");
  check(!has_twice(sweep.backends), "collectives: --backend names one twice");
  check_alone(sweep.backends, "threads", "its ranks are threads of one process");
  check_alone(sweep.backends, "hierarchical", "it keeps the port at which ranks meet");
}

void check_sizes(const Sweep& sweep, int ranks) {
  check(sweep.min_bytes >= kElementBytes * ranks,
      "collectives: --min-bytes must have a number of 4 bytes for each of ", ranks,
      " ranks: ", sweep.min_bytes);
  check(sweep.max_bytes >= sweep.min_bytes && sweep.max_bytes <= kMostBytes,
      "collectives: --max-bytes must be from --min-bytes, ", sweep.min_bytes,
      ", to 64G: ", sweep.max_bytes);
  check(sweep.factor >= 2 && sweep.factor <= 1024,
      "collectives: --factor must be 2 to 1024: ", sweep.factor);
}

}  // namespace

void check_sweep(const Sweep& sweep, int ranks) {
  check_lists(sweep);
  check(ranks > 1,
      "collectives: one rank alone has nobody to talk to; give --nproc-per-node 2 or more");
  check_sizes(sweep, ranks);
  check(sweep.warmup >= 1 && sweep.warmup <= kMostRepeats,
      "collectives: --warmup must be 1 or more: ", sweep.warmup);
  check(sweep.iterations >= 1 && sweep.iterations <= kMostRepeats,
      "collectives: --iterations must be 1 or more: ", sweep.iterations);
}

std::vector<std::int64_t> message_sizes(const Sweep& sweep, int ranks) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t bytes = sweep.min_bytes; bytes <= sweep.max_bytes; bytes *= sweep.factor) {
    sizes.push_back(whole_pieces(bytes, ranks));
  }
  return sizes;
}

}  // namespace lockstep::bench
