#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <torch/types.h>

#include "lockstep/comm/host/shared_region.h"

namespace lockstep::host {

/// A tensor on its way to or from one rank.
struct Message {
  torch::Tensor tensor;
  int peer = 0;
  int tag = 0;
  bool outgoing = false;
  std::size_t moved = 0;  ///< bytes
  bool complete = false;
  std::exception_ptr error = nullptr;

  std::string describe() const;
};

/// Moves tensors between pairs of ranks through their mailboxes, in the order of the calls.
class Post {
 public:
  Post(const SharedRegion& region, int rank);

  std::shared_ptr<Message> add(const torch::Tensor& tensor, int peer, int tag, bool outgoing);

  /// Moves what can be moved without waiting. Throws InvalidArgument if a letter does not fit.
  void poll();

  bool idle() const;
  /// Ends every message with this error and returns their tensors.
  std::vector<torch::Tensor> fail(const std::exception_ptr& error);

 private:
  using Queue = std::deque<std::shared_ptr<Message>>;

  bool write_letter(Message& message);
  bool read_letter(Message& message);

  const SharedRegion& region_;
  int rank_;
  std::vector<Queue> outgoing_, incoming_;
};

}  // namespace lockstep::host
