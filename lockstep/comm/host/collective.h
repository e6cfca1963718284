#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <c10/core/ScalarType.h>
#include <torch/types.h>

#include "lockstep/comm/host/shared_region.h"
#include "lockstep/comm/reduce/reduce_kernel.h"
#include "lockstep/comm/reduce_op.h"

namespace lockstep::host {

/// A collective as one rank asked for it.
///
/// The input consists of `pieces` equal pieces of `elements` elements: size() of them where each
/// rank receives another one (scatter, reduce_scatter, all_to_all), else one.
struct Collective {
  Kind kind;
  at::ScalarType element = at::kByte;
  ReduceOp op = ReduceOp::kSum;
  int root = -1;
  std::int64_t elements = 0;
  int pieces = 1;
  std::byte* input = nullptr;               ///< null where this rank contributes nothing
  std::byte* output = nullptr;              ///< null where this rank receives nothing
  std::vector<torch::Tensor> tensors = {};  ///< own the memory above

  std::size_t element_bytes() const { return c10::elementSize(element); }
  /// Returns whether ranks reduce into the memory that all expose: a staged result is copied out.
  bool in_place() const { return kind == Kind::kAllReduce || kind == Kind::kReduce; }
  std::size_t input_bytes() const {
    return static_cast<std::size_t>(elements) * static_cast<std::size_t>(pieces) * element_bytes();
  }
  /// Returns how the work treats the caches: a large message is not in them.
  reduce::Traffic traffic(int size) const;
  /// Returns whether the root of a broadcast writes a part into the tensors of the others, where it
  /// sees them: else it would idle while they read its own.
  bool root_writes() const;
  /// Returns whether that rank has an input.
  bool gives(int rank) const {
    const bool only_root = kind == Kind::kBroadcast || kind == Kind::kScatter;
    return kind != Kind::kBarrier && (!only_root || rank == root);
  }
  /// Returns whether it is so small that waiting costs more than work: then every rank shows a copy
  /// of its input and computes its own result from those of all, without waiting a second time.
  bool at_once(int size) const;
};

/// A part of a collective: these elements of every piece.
struct Chunk {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

/// The division of a collective into rounds, the same on all ranks.
struct Cut {
  std::int64_t elements = 0;
  std::int64_t per_round = 1;  ///< elements of each piece; fewer in the last round
  std::int64_t rounds() const;
  Chunk chunk(std::int64_t round) const;
};

/// Returns the cut of what all ranks see in place: one round.
Cut uncut(const Collective& collective);
/// Returns the cut for staging buffers: rounds so small that they overlap even in short tensors.
Cut cut_for_staging(const Collective& collective);

/// Where a rank's chunk lies, as this rank sees it.
struct ChunkView {
  std::byte* first = nullptr;    ///< the chunk of piece 0; null if the rank shows nothing
  std::size_t piece_stride = 0;  ///< bytes from there to the chunk of piece 1
  std::byte* piece(int index) const {
    return first + static_cast<std::size_t>(index) * piece_stride;
  }
};

/// Returns the part of a chunk that a rank reduces for all: parts are disjoint, cover the chunk,
/// and their borders lie on multiples of 64 elements, so that no two ranks write the same cache
/// line.
Chunk share_of(const Chunk& chunk, int rank, int size);

/// Does this rank's work on a chunk: reads the views of all ranks, writes its own output or, in
/// place, everyone's. This rank's own view is its tensor.
void exchange(
    const Collective& collective, const Chunk& chunk, std::span<const ChunkView> views, int rank);

/// Copies what others read of the chunk into the staging buffer, the pieces one after the other.
void copy_in(
    const Collective& collective, const Chunk& chunk, std::byte* staging, int rank, int size);

/// Copies what others have reduced of the chunk from the staging buffer to the output.
void copy_out(
    const Collective& collective, const Chunk& chunk, const std::byte* staging, int rank, int size);

/// Copies bytes; source and destination may be the same, or overlap.
void copy_bytes(
    std::byte* to, const std::byte* from, std::size_t bytes, reduce::Traffic traffic = {});

/// Returns the kernels' name of an element type; nothing for types that they do not reduce.
std::optional<reduce::Element> reduce_element(at::ScalarType type);

}  // namespace lockstep::host
