#pragma once

#include <filesystem>
#include <string>

#include "lockstep/formats/weights/tensor_file.h"

namespace lockstep {

/// Writes an archive of `torch.export` again, with other values of the parameters and persistent
/// buffers of all its programs: complete or not there. All else in it stays as it is, also how
/// tensors are laid out. `source` names the weights in messages.
///
/// Nothing is converted and nothing left out: tensors that the weights lack, that no program has,
/// or of another shape or type are a DataError that lists the first of them. Names that share a
/// tensor need one in the weights; where those have more, they must be equal.
///
///     const TensorFile weights = read_weights("runs/night/best.safetensors");
///     write_exported("trained.pt2", "net.pt2", weights, "runs/night/best.safetensors");
void write_exported(const std::filesystem::path& path, const std::filesystem::path& archive,
    const TensorFile& weights, const std::string& source);

}  // namespace lockstep
