#include "lockstep/snapshot/tensor_shards.h"

#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/snapshot/restore_tensors.h"

namespace lockstep {

// The last slash ends the parameter's name: names of values have none.
const TensorRange* range_of(const std::string& name, const TensorRanges& ranges) {
  auto found = ranges.find(name);
  if (found == ranges.end()) found = ranges.find(name.substr(0, name.rfind('/')));
  return found == ranges.end() || found->second.elements() == 0 ? nullptr : &found->second;
}

bool counts_steps(const std::string& name) { return name.ends_with("/step"); }

namespace {

bool writes_alone(const std::string& name, const TensorRange* range, bool is_first) {
  if (range == nullptr) return is_first;
  return range->size() > 0 && (range->begin == 0 || !counts_steps(name));
}

}  // namespace

SnapshotContent shard_of(SnapshotContent content, const TensorRanges& ranges, bool is_first) {
  if (ranges.empty()) return content;
  SnapshotContent own{.metadata = std::move(content.metadata)};
  TensorRanges parts;
  for (const auto& item : content.tensors) {
    const std::string& name = item.key();
    const TensorRange* const range = range_of(name, ranges);
    if (!writes_alone(name, range, is_first)) continue;
    torch::Tensor value = item.value();
    if (range != nullptr && !counts_steps(name)) {
      check(value.numel() == range->size(), "shard_of: ", name, " is ", type_and_shape(value),
          ", its range has ", range->size(), " elements");
      value = value.detach().reshape({-1});
      if (range->size() == range->elements())
        value = value.as_strided(range->whole, strides_of(range->whole, range->order));
      else
        parts.emplace(name, *range);
    }
    own.tensors.insert(name, value);
  }
  if (!parts.empty()) own.metadata[kTensorParts] = to_json(parts);
  return own;
}

}  // namespace lockstep
