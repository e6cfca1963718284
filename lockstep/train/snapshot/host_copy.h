#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <c10/core/Event.h>
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
/// accelerator holds is copied on a stream beside the one that computes; the current stream waits
/// for it, so that no later step changes what is copied, and the host does not, until row_major().
class HostCopy {
 public:
  /// Copies the tensors of several lists as they are now; replaces what was held. A type that files
  /// of tensors do not have is an InvalidArgument.
  void take(const std::vector<nn::NamedTensors>& lists);

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

  std::vector<Piece> pieces_;
  torch::Tensor buffer_;
  std::vector<c10::Event> arrivals_;  // of what accelerators hold
  std::vector<std::uint8_t> spare_;   // of the largest tensor that is put in order
  std::uint64_t bytes_ = 0;
  bool on_devices_ = false;
};

/// Copies elements that lie without gaps in another order, such as channels last, row-major.
///
/// `to` and `from` have the bytes of all elements and do not overlap; `strides` are in elements,
/// none negative. One thread, no LibTorch: it runs beside a training step.
void copy_row_major(std::span<std::uint8_t> to, std::span<const std::uint8_t> from,
    std::span<const std::int64_t> shape, std::span<const std::int64_t> strides,
    std::size_t element_bytes);

}  // namespace lockstep
