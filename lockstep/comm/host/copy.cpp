#include "lockstep/comm/host/copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "lockstep/comm/reduce_op.h"

namespace lockstep::host {
namespace {

constexpr std::size_t kLineBytes = 64, kWordBytes = sizeof(std::int64_t);

// A reduction of one input is a copy.
void copy_words(std::byte* to, const std::byte* from, std::size_t words, reduce::Traffic traffic) {
  const void* const input = from;
  void* const output = to;
  reduce::best_kernel()(
      {reduce::Element::kInt64, ReduceOp::kOr, &input, 1, &output, 1, words, traffic});
}

std::size_t past(const std::byte* memory, std::size_t unit) {
  return reinterpret_cast<std::uintptr_t>(memory) % unit;
}

}  // namespace

// The C library's copy is the fastest that writes to the caches. It counts a third cache that many
// cores share as its own, so it hardly ever writes past it.
void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes, reduce::Traffic traffic) {
  if (bytes == 0 || to == from) return;
  const bool overlap = to < from + bytes && from < to + bytes;
  const std::size_t head = std::min((kLineBytes - past(to, kLineBytes)) % kLineBytes, bytes);
  const std::size_t words = (bytes - head) / kWordBytes;
  if (!traffic.streams || overlap || words == 0 || past(from + head, kWordBytes) != 0) {
    std::memmove(to, from, bytes);
    return;
  }
  std::memcpy(to, from, head);
  copy_words(to + head, from + head, words, traffic);
  const std::size_t done = head + words * kWordBytes;
  std::memcpy(to + done, from + done, bytes - done);
}

}  // namespace lockstep::host
