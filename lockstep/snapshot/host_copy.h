#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <torch/types.h>

#include "lockstep/formats/weights/tensor_file.h"
#include "lockstep/nn/named_state.h"

namespace lockstep {

/// Holds a copy of tensors in one buffer of host memory, which serves again: pinned if a tensor is
/// on an accelerator.
///
/// Note [Host copy]
/// take() is the time in which training stands still, so it only moves bytes, in the order in which
/// they lie. row_major() puts them into the order of files later, in another thread. The buffer
/// grows with the largest copy; only the first one, or a larger one, pays for new memory. What an
/// accelerator holds is copied on a stream beside the one that computes. The host waits for that in
/// row_major() alone. Whoever changes the tensors next waits on the device: the current stream
/// does, at once after take(), and later after begin(), so that much is computed beside the copies
/// and no second copy takes the device's memory.
class HostCopy {
 public:
  /// Copies the tensors of several lists as they are now; replaces what was held. A type that files
  /// of tensors do not have is an InvalidArgument.
  void take(const std::vector<nn::NamedTensors>& lists);

  /// Does so for tensors of which those on accelerators stay as they are until let_writers_wait().
  void begin(const std::vector<nn::NamedTensors>& lists);

  /// Lets what the current streams are given from now on wait until the tensors are copied: call it
  /// before what changes them. Costs nothing where nothing was begun since the last time.
  void let_writers_wait();

  /// Brings the copies into row-major order and shows them, list by list. The bytes are valid until
  /// the next take(). Waits for accelerators. Uses no thread but the caller's.
  std::vector<std::vector<TensorEntry>> row_major();

  /// Counts the bytes that were taken last.
  std::uint64_t bytes() const { return bytes_; }

 private:
  struct Piece {
    std::size_t list = 0;
    std::string name;
    torch::Tensor source;  // only while it is copied
    ElementType type = ElementType::kFloat32;
    std::vector<std::int64_t> shape, strides;
    std::uint64_t offset = 0, bytes = 0;
    bool in_order = true;
  };

  void lay_out(const std::vector<nn::NamedTensors>& lists);
  void make_room();
  void copy_from_host();
  void copy_from_devices();
  torch::Tensor place_of(const Piece& piece) const;
  c10::Stream side_of(torch::Device device);
  void wait_for_copies();

  std::vector<Piece> pieces_;
  torch::Tensor buffer_;
  std::vector<torch::Device> devices_;                      // of the tensors, without the host
  std::unordered_map<torch::Device, c10::Stream> streams_;  // beside those that compute
  std::vector<c10::Event> arrivals_;                        // the ends of the copies on them
  bool is_begun_ = false;                                   // and no writer waits yet
  std::vector<std::uint8_t> spare_;  // of the largest tensor that is put in order
  std::uint64_t bytes_ = 0;
};

}  // namespace lockstep
