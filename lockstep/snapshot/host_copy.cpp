#include "lockstep/snapshot/host_copy.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>

#include "lockstep/core/error.h"
#include "lockstep/device/accelerator.h"
#include "lockstep/device/host_tensor.h"
#include "lockstep/formats/weights/tensor_file.h"
#include "lockstep/nn/in_parallel.h"
#include "lockstep/nn/weights.h"

namespace lockstep {
namespace {

constexpr std::uint64_t kAlignment = 64;
// Large enough that a thread's start does not count, small enough that all have something to do.
constexpr std::uint64_t kBytesPerTask = std::uint64_t{4} << 20;

std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Fewer, larger pages: a copy of many megabytes misses the address cache less.
void prefer_huge_pages(const torch::Tensor& buffer) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(buffer.mutable_data_ptr());
  const std::uintptr_t first = (begin + page - 1) / page * page;
  const std::uintptr_t last = (begin + buffer.nbytes()) / page * page;
  // A kernel without huge pages refuses, which costs only speed.
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
}

}  // namespace

void HostCopy::take(const std::vector<nn::NamedTensors>& lists) {
  begin(lists);
  let_writers_wait();
}

void HostCopy::begin(const std::vector<nn::NamedTensors>& lists) {
  const torch::NoGradGuard no_gradients;
  wait_for_copies();  // none is under way, unless nobody came to look at the one before
  lay_out(lists);
  make_room();
  copy_from_host();
  if (!devices_.empty()) copy_from_devices();
  for (Piece& piece : pieces_) piece.source = torch::Tensor();
}

void HostCopy::lay_out(const std::vector<nn::NamedTensors>& lists) {
  pieces_.clear();
  bytes_ = 0;
  devices_.clear();
  std::uint64_t end = 0;
  for (std::size_t list = 0; list < lists.size(); ++list) {
    for (const auto& item : lists[list]) {
      const auto type = nn::element_type_of(item.value().scalar_type());
      check(type && safetensors_name(*type) && item.value().layout() == torch::kStrided,
          "HostCopy: ", item.key(), " has a type that files of tensors do not have: ",
          c10::toString(item.value().scalar_type()));
      torch::Tensor source = item.value().detach();
      // Gaps and repeated elements are rare (views of larger tensors): these are copied twice.
      if (!source.is_non_overlapping_and_dense()) source = source.contiguous();
      pieces_.push_back({.list = list,
          .name = item.key(),
          .source = source,
          .type = *type,
          .shape = source.sizes().vec(),
          .strides = source.strides().vec(),
          .offset = end,
          .bytes = source.nbytes(),
          .in_order = source.is_contiguous()});
      bytes_ += source.nbytes();
      end = aligned(end + source.nbytes());
      const torch::Device device = source.device();
      if (!device.is_cpu() && std::ranges::find(devices_, device) == devices_.end())
        devices_.push_back(device);
    }
  }
}

void HostCopy::make_room() {
  const std::uint64_t needed =
      pieces_.empty() ? 0 : aligned(pieces_.back().offset + pieces_.back().bytes);
  const bool has_room =
      buffer_.defined() && buffer_.nbytes() >= needed && (devices_.empty() || buffer_.is_pinned());
  if (has_room) return;
  buffer_ = torch::Tensor();  // before the new one is there, or both would count
  buffer_ = at::empty(
      {static_cast<std::int64_t>(needed)}, on_host(torch::kByte).pinned_memory(!devices_.empty()));
  if (devices_.empty()) prefer_huge_pages(buffer_);
}

// Tasks of about equal size, whatever the sizes of the tensors: one large one is cut.
void HostCopy::copy_from_host() {
  struct Task {
    std::uint8_t* to;
    const std::uint8_t* from;
    std::size_t bytes;
  };
  std::vector<Task> tasks;
  auto* const base = static_cast<std::uint8_t*>(buffer_.mutable_data_ptr());
  for (const Piece& piece : pieces_) {
    if (!piece.source.is_cpu()) continue;
    const auto* const from = static_cast<const std::uint8_t*>(piece.source.const_data_ptr());
    for (std::uint64_t at = 0; at < piece.bytes; at += kBytesPerTask) {
      const std::uint64_t bytes = std::min(kBytesPerTask, piece.bytes - at);
      tasks.push_back({base + piece.offset + at, from + at, bytes});
    }
  }
  nn::in_parallel(std::ssize(tasks), [&](nn::Range some) {
    for (std::int64_t task = some.begin; task < some.end; ++task) {
      const auto& [to, from, bytes] = tasks[static_cast<std::size_t>(task)];
      std::memcpy(to, from, bytes);
    }
  });
}

void HostCopy::copy_from_devices() {
  for (const torch::Device& device : devices_) wait_for(side_of(device), current_stream(device));
  is_begun_ = true;
  for (const Piece& piece : pieces_) {
    if (piece.source.is_cpu()) continue;
    const c10::Stream side = side_of(piece.source.device());
    const c10::StreamGuard guard(side);
    place_of(piece).copy_(piece.source, /*non_blocking=*/true);
    piece.source.record_stream(side);
  }
  for (const torch::Device& device : devices_)
    arrivals_.emplace_back(device.type()).record(side_of(device));
}

// It shares the buffer's memory, so that LibTorch's allocator keeps that until the copy has passed,
// whoever lets go of it before.
torch::Tensor HostCopy::place_of(const Piece& piece) const {
  const torch::ScalarType type = piece.source.scalar_type();
  const auto first = piece.offset / c10::elementSize(type);
  return at::empty({0}, on_host(type))
      .set_(buffer_.storage(), static_cast<std::int64_t>(first), piece.shape, piece.strides);
}

// Always the same one: LibTorch has few streams and gives them to others, too, who would wait.
c10::Stream HostCopy::side_of(torch::Device device) {
  const auto found = streams_.find(device);
  if (found != streams_.end()) return found->second;
  return streams_.emplace(device, side_stream(device)).first->second;
}

void HostCopy::let_writers_wait() {
  if (!std::exchange(is_begun_, false)) return;
  for (const auto& [device, side] : streams_) wait_for(current_stream(device), side);
}

void HostCopy::wait_for_copies() {
  for (const c10::Event& arrival : arrivals_) arrival.synchronize();
  arrivals_.clear();
}

std::vector<std::vector<TensorEntry>> HostCopy::row_major() {
  wait_for_copies();
  std::vector<std::vector<TensorEntry>> lists;
  for (Piece& piece : pieces_) {
    auto* const at = static_cast<std::uint8_t*>(buffer_.mutable_data_ptr()) + piece.offset;
    const std::span<std::uint8_t> bytes(at, piece.bytes);
    if (!piece.in_order) {
      spare_.assign(bytes.begin(), bytes.end());
      copy_row_major(bytes, spare_, piece.shape, piece.strides, bytes_of(piece.type));
      piece.in_order = true;
    }
    lists.resize(std::max(lists.size(), piece.list + 1));
    lists[piece.list].push_back(
        {.name = piece.name, .type = piece.type, .shape = piece.shape, .bytes = bytes});
  }
  return lists;
}

}  // namespace lockstep
