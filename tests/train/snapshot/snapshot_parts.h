#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"
#include "lockstep/nn/named_state.h"
#include "lockstep/snapshot/snapshot_files.h"
#include "lockstep/snapshot/snapshot_saver.h"

namespace lockstep::testing {

/// Makes a list of one tensor.
inline nn::NamedTensors named(const std::string& name, const torch::Tensor& tensor) {
  nn::NamedTensors list("Tensor");
  list.insert(name, tensor);
  return list;
}

/// Makes the part of a rank that is a stage with one tensor, which holds the step and the
/// rank.
inline SnapshotPart part_of(const ProcessGroup& world, std::int64_t step, std::int64_t size = 100) {
  const auto value = torch::full({size}, static_cast<double>(10 * step + world.rank()));
  const auto names = snapshot_file_names(
      {.rank = world.rank(), .stage = world.rank(), .stages = world.size(), .ranks = world.size()});
  SnapshotPart part;
  part.files[names.model] = {.tensors = named(concat("weight", world.rank()), value)};
  part.files[names.rank] = {.tensors = named("own", value)};
  if (world.rank() == 0) part.state = concat("{\"step\":", step, "}");
  return part;
}

/// Lists what is in a folder, in order; nothing if it is not there.
inline std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::set<std::string> names;
  if (std::filesystem::exists(folder)) {
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      names.insert(entry.path().filename());
  }
  return {names.begin(), names.end()};
}

}  // namespace lockstep::testing
