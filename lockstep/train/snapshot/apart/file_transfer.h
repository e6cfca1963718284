#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/formats/byte_stream.h"

namespace lockstep {

/// A sink whose bytes other ranks receive by receive_file(), in pieces of a few MiB.
class FileSender final : public ByteSink {
 public:
  FileSender(const ProcessGroup& group, std::vector<int> receivers);

  /// Sends what is left, and that this is all.
  void finish();

  /// Sends that the file will not become whole.
  void give_up();

 private:
  void put(std::span<const std::uint8_t> bytes) override;
  void send_piece();
  void send(const torch::Tensor& tensor);

  ProcessGroup group_;
  std::vector<int> receivers_;
  torch::Tensor piece_;
  std::int64_t filled_ = 0;  // bytes of it
};

/// Receives a file into a sink, and returns whether it is whole: not if the sender gave up. What
/// the sink throws is thrown once the rest has come, so that the sender never waits in vain.
bool receive_file(const ProcessGroup& group, int sender, ByteSink& sink);

/// Receives a file that nobody wants any more.
void discard_file(const ProcessGroup& group, int sender);

}  // namespace lockstep
