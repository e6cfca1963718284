#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/data/tensor_samples.h"
#include "lockstep/data/tensor_table.h"
#include "lockstep/formats/weights/weight_file.h"
#include "lockstep/nn/models/catalogue.h"
#include "lockstep/train/input/datasets.h"

namespace lockstep {
namespace {

// As many as the embedding of a language model has rows.
std::optional<std::int64_t> vocabulary_of_weights(const std::string& path) {
  const TensorFile file = read_weights(path);
  for (const TensorEntry& entry : file.entries())
    if (entry.name.ends_with("wte.weight") || entry.name.ends_with("embed_tokens.weight"))
      return entry.shape.empty() ? std::nullopt : std::optional(entry.shape.front());
  return std::nullopt;
}

// Where neither flag nor weights say it the data does; an exported net has one that is not known.
// Bytes have their own: weights of another are of other tokens.
std::optional<std::int64_t> vocabulary_of(const TrainOptions& options) {
  if (options.classes || options.data.name == "text") return options.classes;
  if (nn::is_exported(options.model)) return 0;
  const bool is_ours = nn::net_needs(options.model).context > 0;
  return is_ours && !options.pretrained.empty() ? vocabulary_of_weights(options.pretrained)
                                                : std::nullopt;
}

data::TensorTables open_tables(const TrainOptions& options) {
  const DataSource& data = options.data;
  if (data.name == "tensors")
    return data::open_tensors(data.directory, {data.inputs, data.targets});
  const std::int64_t length = sequence_length(options);
  check(
      length > 0, "train: --data ", data.name, " is cut into sequences: give --sequence-length T");
  const auto kind = data.name == "text" ? data::SequenceKind::kText : data::SequenceKind::kTokens;
  return data::open_sequences(data.directory, kind, length, vocabulary_of(options));
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
