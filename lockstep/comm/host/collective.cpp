#include "lockstep/comm/host/collective.h"

#include <algorithm>
#include <cstring>

#include "lockstep/comm/reduce/reduce_kernel.h"
#include "lockstep/core/error.h"

namespace lockstep::host {
namespace {

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, bytes);
}

std::size_t bytes_of(const Collective& collective, std::int64_t elements) {
  return static_cast<std::size_t>(elements) * collective.element_bytes();
}

void reduce_into(const Collective& collective, std::int64_t elements,
    const std::vector<std::byte*>& inputs, const std::vector<std::byte*>& outputs) {
  if (elements == 0) return;
  const std::vector<const void*> from(inputs.begin(), inputs.end());
  const std::vector<void*> to(outputs.begin(), outputs.end());
  reduce::best_kernel()({reduce_element(collective.element), collective.op, from.data(),
      static_cast<int>(from.size()), to.data(), static_cast<int>(to.size()),
      static_cast<std::size_t>(elements)});
}

// Each rank reduces its share once and writes it to all who want it.
void reduce_in_place(const Collective& collective, const Chunk& chunk,
    const std::vector<ChunkView>& views, int rank) {
  const Chunk share = share_of({0, chunk.count}, rank, static_cast<int>(views.size()));
  const std::size_t offset = bytes_of(collective, share.begin);
  std::vector<std::byte*> everyone;
  for (const ChunkView& view : views) everyone.push_back(view.first + offset);
  const bool all = collective.kind == Kind::kAllReduce;
  const auto outputs =
      all ? everyone : std::vector{everyone[static_cast<std::size_t>(collective.root)]};
  reduce_into(collective, share.count, everyone, outputs);
}

void reduce_own_piece(const Collective& collective, const Chunk& chunk,
    const std::vector<ChunkView>& views, int rank) {
  std::vector<std::byte*> inputs;
  for (const ChunkView& view : views) inputs.push_back(view.piece(rank));
  reduce_into(
      collective, chunk.count, inputs, {collective.output + bytes_of(collective, chunk.begin)});
}

// Puts one piece of every rank, in rank order, into the output.
void collect(const Collective& collective, const Chunk& chunk, const std::vector<ChunkView>& views,
    int piece) {
  std::byte* to = collective.output + bytes_of(collective, chunk.begin);
  for (const ChunkView& view : views) {
    copy_bytes(to, view.piece(piece), bytes_of(collective, chunk.count));
    to += bytes_of(collective, collective.elements);
  }
}

void copy_from_root(const Collective& collective, const Chunk& chunk,
    const std::vector<ChunkView>& views, int piece) {
  const ChunkView& root = views[static_cast<std::size_t>(collective.root)];
  copy_bytes(collective.output + bytes_of(collective, chunk.begin), root.piece(piece),
      bytes_of(collective, chunk.count));
}

}  // namespace

reduce::Element reduce_element(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return reduce::Element::kFloat;
    case at::kDouble:
      return reduce::Element::kDouble;
    case at::kHalf:
      return reduce::Element::kHalf;
    case at::kBFloat16:
      return reduce::Element::kBFloat16;
    case at::kChar:
      return reduce::Element::kInt8;
    case at::kByte:
      return reduce::Element::kUInt8;
    case at::kShort:
      return reduce::Element::kInt16;
    case at::kInt:
      return reduce::Element::kInt32;
    case at::kLong:
      return reduce::Element::kInt64;
    default:
      throw InvalidArgument(
          concat("reduce: elements of this type cannot be reduced: ", c10::toString(type)));
  }
}

Chunk share_of(const Chunk& chunk, int rank, int size) {
  constexpr std::int64_t kLine = 64;
  const std::int64_t lines = (chunk.count + kLine - 1) / kLine;
  const std::int64_t begin = std::min(lines * rank / size * kLine, chunk.count);
  const std::int64_t end = std::min(lines * (rank + 1) / size * kLine, chunk.count);
  return {chunk.begin + begin, end - begin};
}

void exchange(const Collective& collective, const Chunk& chunk, const std::vector<ChunkView>& views,
    int rank) {
  switch (collective.kind) {
    case Kind::kAllReduce:
    case Kind::kReduce:
      return reduce_in_place(collective, chunk, views, rank);
    case Kind::kReduceScatter:
      return reduce_own_piece(collective, chunk, views, rank);
    case Kind::kAllToAll:
      return collect(collective, chunk, views, rank);
    case Kind::kScatter:
      return copy_from_root(collective, chunk, views, rank);
    case Kind::kAllGather:
    case Kind::kGather:
      if (collective.output != nullptr) collect(collective, chunk, views, 0);
      return;
    case Kind::kBroadcast:
      if (rank != collective.root) copy_from_root(collective, chunk, views, 0);
      return;
    case Kind::kBarrier:
    case Kind::kNone:
      return;
  }
}

void copy_in(const Collective& collective, const Chunk& chunk, std::byte* staging) {
  const std::byte* from = collective.input + bytes_of(collective, chunk.begin);
  for (int piece = 0; piece < collective.pieces; ++piece) {
    copy_bytes(staging, from, bytes_of(collective, chunk.count));
    staging += bytes_of(collective, chunk.count);
    from += bytes_of(collective, collective.elements);
  }
}

void copy_out(const Collective& collective, const Chunk& chunk, const std::byte* staging) {
  copy_bytes(collective.output + bytes_of(collective, chunk.begin), staging,
      bytes_of(collective, chunk.count));
}

}  // namespace lockstep::host
