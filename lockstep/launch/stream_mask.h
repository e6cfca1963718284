#pragma once

#include <map>
#include <string>

namespace lockstep::launch {

/// Names the two streams of a worker; the numbers are torchrun's.
enum class Stream { kOutput = 1, kErrors = 2 };

/// Says for each local rank which of its streams are meant: torchrun's `--redirects` and `--tee`.
class StreamMask {
 public:
  /// Means no stream of any rank.
  StreamMask() = default;

  /// Reads `0` none, `1` output, `2` errors, `3` both, for all ranks; or `RANK:MASK,...` for these
  /// ranks and none of the others. Throws InvalidArgument that names the flag.
  ///
  ///     StreamMask::parse("--tee", "0:3,1:2")
  static StreamMask parse(const std::string& flag, const std::string& text);

  bool has(int local_rank, Stream stream) const;

  /// Says that no stream is meant.
  bool empty() const;

 private:
  int all_ = 0;
  std::map<int, int> ranks_;
};

}  // namespace lockstep::launch
