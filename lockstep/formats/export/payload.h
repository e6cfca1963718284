#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/formats/export/parts.h"
#include "lockstep/formats/weights/tensor_file.h"

namespace lockstep::exported {

/// Returns memory as tensors hold it: pointing to the mapped file, keeping all of it alive.
FileMemory memory_of(const std::shared_ptr<Memory>& memory);

/// Reads a program's weights and constants, laid out row-major: names that share their elements get
/// the same bytes.
///
/// Refuses with DataError what has no such bytes (custom objects, tensors of subclasses, of export
/// with fake tensors), and parameters that overlap others without being the same.
TensorFile read_tensors(
    const Parts& parts, const std::string& program, const std::shared_ptr<Memory>& memory);

/// A tensor in a part of the archive; offset and strides count elements.
struct View {
  std::string part;
  ElementType type = ElementType::kFloat32;
  std::vector<std::int64_t> shape, strides;
  std::uint64_t offset = 0;

  friend auto operator<=>(const View&, const View&) = default;  // NOLINT(modernize-use-nullptr)
};

/// Finds where a program's weights lie, by their names. What read_tensors() has not taken may be
/// out of bounds; weights that are pickled are refused with DataError.
std::map<std::string, View> views_of_weights(const Parts& parts, const std::string& program);

}  // namespace lockstep::exported
