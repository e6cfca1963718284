#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "tests/accelerator/nccl/ring.h"
#include "tests/accelerator/streams.h"

namespace lockstep::emulated {

/// A call that a rank has made and not come to yet.
struct PendingCall {
  Call call;
  std::size_t stream;  ///< of the rank
  Mark end;            ///< the stream goes on when the kernel has run
};

/// The calls that a rank has made and that are not on their streams yet: they come there together,
/// when those whom they meet for the first time have called, too.
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
