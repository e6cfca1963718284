#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "lockstep/formats/weights/pickle_value.h"

namespace lockstep::pickle {

/// Holds what a pickle says.
struct Pickle {
  std::unique_ptr<Arena> arena;
  Value root;
};

/// Reads a pickle of protocol 2 to 5 as torch.save writes it, by torch_rules.h; nothing is
/// executed.
///
/// Only the opcodes that state dictionaries need are known. A pickle that uses another, or breaks
/// the rules of one, is a DataError with `file` and the offset, counted from `file_offset`. Memory
/// grows with the bytes that were read: lengths are compared with what is left before they are
/// believed.
Pickle read_pickle(
    std::span<const std::uint8_t> bytes, const std::string& file, std::uint64_t file_offset);

}  // namespace lockstep::pickle
