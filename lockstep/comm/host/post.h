#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "lockstep/comm/host/shared_region.h"

namespace lockstep::host {

/// A tensor on its way to or from one rank.
struct Message {
  torch::Tensor tensor;
  int peer = 0;  ///< kAnyRank until the sender is known
  int tag = 0;
  bool outgoing = false;
  bool is_aside = false;                 ///< nobody awaited it when it came
  std::size_t moved = 0;                 ///< bytes
  std::chrono::milliseconds limit = {};  ///< of a wait for it
  bool complete = false;
  std::exception_ptr error = nullptr;

  std::string describe(const SharedRegion& region) const;
};

/// Moves tensors between pairs of ranks through their mailboxes, in the order of the calls.
///
/// A recv takes the next message of its sender, whose tag must be the same; or, by match_tags(),
/// the next one that has its tag. Those before it are then set aside until somebody asks for them.
class Post {
 public:
  Post(const SharedRegion& region, int rank);

  void match_tags() { matches_tags_ = true; }
  bool matches_tags() const { return matches_tags_; }

  std::shared_ptr<Message> add(const torch::Tensor& tensor, int peer, int tag, bool outgoing);

  /// Moves what can be moved without waiting. Throws InvalidArgument if a letter does not fit.
  void poll();

  /// Returns what has ended since the last call.
  std::vector<std::shared_ptr<Message>> take_ended() { return std::exchange(ended_, {}); }

  bool idle() const;
  /// Ends every message with this error and returns their tensors.
  std::vector<torch::Tensor> fail(const std::exception_ptr& error);

 private:
  using Queue = std::deque<std::shared_ptr<Message>>;

  bool write_letter(Message& message);
  bool read_letter(int peer);
  std::shared_ptr<Message> receiver_of(int peer, const Mailbox::Header& header);
  std::shared_ptr<Message> take_awaited(int peer, const Mailbox::Header& header);
  void hand_over(const std::shared_ptr<Message>& aside);
  bool is_awaited(int peer) const;

  const SharedRegion& region_;
  int rank_;
  bool matches_tags_ = false;
  std::vector<Queue> outgoing_;
  Queue awaited_;                                   ///< recvs that no message has met yet
  std::vector<std::shared_ptr<Message>> arriving_;  ///< from each rank; null if none is
  Queue aside_;                                     ///< came whole, and nobody has asked for them
  std::vector<std::shared_ptr<Message>> ended_;
};

}  // namespace lockstep::host
