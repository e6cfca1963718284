#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/data/tensor_samples.h"
#include "lockstep/data/tensor_table.h"
#include "lockstep/train/input/datasets.h"

namespace lockstep {
namespace {

data::TensorTables open_tables(const TrainOptions& options) {
  const DataSource& data = options.data;
  if (data.name == "tensors")
    return data::open_tensors(data.directory, {data.inputs, data.targets});
  const std::int64_t length = sequence_length(options);
  check(
      length > 0, "train: --data ", data.name, " is cut into sequences: give --sequence-length T");
  const auto kind = data.name == "text" ? data::SequenceKind::kText : data::SequenceKind::kTokens;
  return data::open_sequences(data.directory, kind, length);
}

// Classes are counted and split by; nothing else is.
std::vector<std::int64_t> labels_of(const data::Samples& set) {
  std::vector<std::int64_t> labels;
  const auto targets = set.targets();
  if (set.classes() == 0 || !targets.front().sizes.empty()) return labels;
  for (std::int64_t index = 0; index < set.size(); ++index)
    labels.push_back(set.label(index).value_or(kIgnoredTarget));
  return labels;
}

}  // namespace

std::optional<Datasets> open_tensor_data(const TrainOptions& options) {
  const DataSource& data = options.data;
  if (!is_tensor_set(data.name)) return std::nullopt;
  check(options.loading.augment == Augment::kNone && !options.loading.image_size,
      "train: --augment and --image-size are for images, and ", data.name, " has none");
  data::TensorTables tables = open_tables(options);
  const auto samples = [&](std::optional<data::TensorTable>& part) -> data::SamplesPointer {
    if (!part) return nullptr;
    return std::make_shared<data::TensorSamples>(*std::move(part), tables.classes);
  };
  std::optional<data::TensorTable> train = std::move(tables.train);
  const data::SamplesPointer trained = samples(train);
  return Datasets{.train = trained,
      .unaugmented = trained,
      .labels = labels_of(*trained),
      .validation = samples(tables.validation),
      .test = samples(tables.test),
      .remark = joined(tables.remarks, "; "),
      .is_mere_copy = true};
}

}  // namespace lockstep
