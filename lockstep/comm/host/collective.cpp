#include "lockstep/comm/host/collective.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include <c10/util/SmallVector.h>

#include "lockstep/comm/reduce/reduce_kernel.h"
#include "lockstep/core/error.h"

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

namespace {

std::size_t bytes_of(const Collective& collective, std::int64_t elements) {
  return static_cast<std::size_t>(elements) * collective.element_bytes();
}

constexpr std::int64_t kLine = 64;  // elements: no two ranks write the same cache line

using Pointers = c10::SmallVector<void*, 16>;

void reduce_into(const Collective& collective, std::int64_t elements, const Pointers& inputs,
    const Pointers& outputs) {
  if (elements == 0) return;
  reduce::Traffic traffic = collective.traffic(static_cast<int>(inputs.size()));
  traffic.streams &= !collective.in_place();  // what is read is in the caches
  reduce::best_kernel()({reduce_element(collective.element).value(), collective.op, inputs.data(),
      static_cast<int>(inputs.size()), outputs.data(), static_cast<int>(outputs.size()),
      static_cast<std::size_t>(elements), traffic});
}

Pointers pieces_of(std::span<const ChunkView> views, int piece, std::size_t offset) {
  Pointers pieces;
  for (const ChunkView& view : views) pieces.push_back(view.piece(piece) + offset);
  return pieces;
}

// Each rank reduces its share once and writes it to all who want it.
void reduce_in_place(
    const Collective& collective, const Chunk& chunk, std::span<const ChunkView> views, int rank) {
  const Chunk share = share_of({0, chunk.count}, rank, static_cast<int>(views.size()));
  const Pointers everyone = pieces_of(views, 0, bytes_of(collective, share.begin));
  const bool all = collective.kind == Kind::kAllReduce;
  const Pointers outputs =
      all ? everyone : Pointers{everyone[static_cast<std::size_t>(collective.root)]};
  reduce_into(collective, share.count, everyone, outputs);
}

// Each receiver reduces its piece of all inputs into its own output.
void reduce_own_piece(
    const Collective& collective, const Chunk& chunk, std::span<const ChunkView> views, int piece) {
  if (collective.output == nullptr) return;
  reduce_into(collective, chunk.count, pieces_of(views, piece, 0),
      {collective.output + bytes_of(collective, chunk.begin)});
}

// Puts one piece of every rank, in rank order, into the output.
void collect(
    const Collective& collective, const Chunk& chunk, std::span<const ChunkView> views, int piece) {
  const reduce::Traffic traffic = collective.traffic(static_cast<int>(views.size()));
  std::byte* to = collective.output + bytes_of(collective, chunk.begin);
  for (const ChunkView& view : views) {
    copy_bytes(to, view.piece(piece), bytes_of(collective, chunk.count), traffic);
    to += bytes_of(collective, collective.elements);
  }
}

void copy_from_root(
    const Collective& collective, const Chunk& chunk, std::span<const ChunkView> views, int piece) {
  const ChunkView& root = views[static_cast<std::size_t>(collective.root)];
  reduce::Traffic traffic = collective.traffic(static_cast<int>(views.size()));
  // Through staging buffers the receiver keeps up with the root; that it writes past the caches
  // only slows them down.
  traffic.streams &= chunk.count == collective.elements;
  copy_bytes(collective.output + bytes_of(collective, chunk.begin), root.piece(piece),
      bytes_of(collective, chunk.count), traffic);
}

// Each of n - 1 receivers reads all but an n-th; the root writes those: all copy the same number of
// bytes.
void broadcast(
    const Collective& collective, const Chunk& chunk, std::span<const ChunkView> views, int rank) {
  const int size = static_cast<int>(views.size());
  const Chunk last = share_of({0, chunk.count}, size - 1, size);
  if (rank != collective.root) {
    const bool all = views[static_cast<std::size_t>(rank)].first == nullptr;
    return copy_from_root(collective, {chunk.begin, all ? chunk.count : last.begin}, views, 0);
  }
  const std::byte* const from = views[static_cast<std::size_t>(rank)].first;
  const std::size_t offset = bytes_of(collective, last.begin);
  for (const ChunkView& view : views) {
    if (view.first == nullptr) continue;
    copy_bytes(view.first + offset, from + offset, bytes_of(collective, last.count),
        collective.traffic(size));
  }
}

}  // namespace

std::optional<reduce::Element> reduce_element(at::ScalarType type) {
  using reduce::Element;
  constexpr std::pair<at::ScalarType, Element> kElements[] = {{at::kFloat, Element::kFloat},
      {at::kDouble, Element::kDouble}, {at::kHalf, Element::kHalf},
      {at::kBFloat16, Element::kBFloat16}, {at::kChar, Element::kInt8},
      {at::kByte, Element::kUInt8}, {at::kShort, Element::kInt16}, {at::kInt, Element::kInt32},
      {at::kLong, Element::kInt64}};
  for (const auto& [name, element] : kElements)
    if (name == type) return element;
  return std::nullopt;
}

Chunk share_of(const Chunk& chunk, int rank, int size) {
  const std::int64_t lines = (chunk.count + kLine - 1) / kLine;
  const std::int64_t begin = std::min(lines * rank / size * kLine, chunk.count);
  const std::int64_t end = std::min(lines * (rank + 1) / size * kLine, chunk.count);
  return {chunk.begin + begin, end - begin};
}

bool Collective::at_once(int size) const {
  constexpr std::size_t kMostBytes = std::size_t{1} << 14;  // that a rank reads
  return input_bytes() * static_cast<std::size_t>(size) <= kMostBytes;
}

// Below, a core's second cache holds it; from where results stream, no core's share of a third one
// does, so whoever reads the result finds it in memory in any case.
reduce::Traffic Collective::traffic(int size) const {
  constexpr std::size_t kAhead = 2048, kAheadFrom = std::size_t{4} << 20,
                        kStreamsFrom = std::size_t{16} << 20;
  const bool gathers = kind == Kind::kAllGather || kind == Kind::kGather;
  const std::size_t bytes = input_bytes() * static_cast<std::size_t>(gathers ? size : 1);
  return {bytes >= kAheadFrom ? kAhead : 0, bytes >= kStreamsFrom};
}

bool Collective::root_writes() const {
  constexpr std::size_t kLeastBytes = std::size_t{1} << 17;  // worth another wait
  return kind == Kind::kBroadcast && input_bytes() >= kLeastBytes;
}

std::int64_t Cut::rounds() const {
  return std::max<std::int64_t>(1, (elements + per_round - 1) / per_round);
}

Chunk Cut::chunk(std::int64_t round) const {
  const std::int64_t begin = round * per_round;
  return {begin, std::min(per_round, elements - begin)};
}

Cut uncut(const Collective& collective) {
  return {collective.elements, std::max<std::int64_t>(1, collective.elements)};
}

Cut cut_for_staging(const Collective& collective) {
  constexpr std::int64_t kOverlapping = 4, kLeastBytes = 1 << 14;
  const auto unit = static_cast<std::int64_t>(collective.element_bytes()) * collective.pieces;
  const auto capacity = static_cast<std::int64_t>(SharedRegion::kStagingBytes) / unit;
  const std::int64_t wanted = std::max(collective.elements / kOverlapping, kLeastBytes / unit);
  const std::int64_t most = std::max<std::int64_t>(1, capacity / kLine * kLine);
  return {collective.elements, std::min((wanted / kLine + 1) * kLine, most)};
}

void exchange(
    const Collective& collective, const Chunk& chunk, std::span<const ChunkView> views, int rank) {
  const bool at_once = collective.at_once(static_cast<int>(views.size()));
  switch (collective.kind) {
    case Kind::kAllReduce:
    case Kind::kReduce:
      if (at_once) return reduce_own_piece(collective, chunk, views, 0);
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
      return broadcast(collective, chunk, views, rank);
    default:  // a barrier
      return;
  }
}

namespace {

// Copies all of the chunk but what the rank reduces itself, which it does in its own tensor.
void copy_around_share(const Collective& collective, const Chunk& chunk, const Chunk& share,
    std::byte* to, const std::byte* from) {
  const std::int64_t end = share.begin + share.count;
  copy_bytes(to, from, bytes_of(collective, share.begin));
  copy_bytes(to + bytes_of(collective, end), from + bytes_of(collective, end),
      bytes_of(collective, chunk.count - end));
}

}  // namespace

void copy_in(
    const Collective& collective, const Chunk& chunk, std::byte* staging, int rank, int size) {
  const std::byte* from = collective.input + bytes_of(collective, chunk.begin);
  if (collective.in_place() && !collective.at_once(size)) {
    return copy_around_share(
        collective, chunk, share_of({0, chunk.count}, rank, size), staging, from);
  }
  const int own = collective.pieces > 1 ? rank : -1;  // which the rank reads where it is
  for (int piece = 0; piece < collective.pieces; ++piece) {
    if (piece != own) copy_bytes(staging, from, bytes_of(collective, chunk.count));
    staging += bytes_of(collective, chunk.count);
    from += bytes_of(collective, collective.elements);
  }
}

void copy_out(const Collective& collective, const Chunk& chunk, const std::byte* staging, int rank,
    int size) {
  copy_around_share(collective, chunk, share_of({0, chunk.count}, rank, size),
      collective.output + bytes_of(collective, chunk.begin), staging);
}

}  // namespace lockstep::host
