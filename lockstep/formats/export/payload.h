#pragma once

#include <memory>
#include <string>

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

}  // namespace lockstep::exported
