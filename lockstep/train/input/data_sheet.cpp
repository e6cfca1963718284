#include "lockstep/train/input/data_sheet.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/data/batch.h"
#include "lockstep/data/distributed_sampler.h"
#include "lockstep/data/pixels/pixel_scale.h"
#include "lockstep/train/input/dataset_sources.h"

namespace lockstep {
namespace {

constexpr std::size_t kFirstIndices = 8;

DatasetSource open_parts(const TrainOptions& options) {
  DatasetSource source = open_source(options);
  hold_out(source, options);
  return source;
}

// As a run that has images of one of the two kinds uses them for both.
data::SamplesPointer part_of(const DatasetSource& source, const SheetRequest& request) {
  if (request.part == SheetPart::kTrain) return source.train;
  const bool is_test = request.part == SheetPart::kTest;
  const auto& wanted = is_test ? source.test : source.validation;
  const auto part = wanted ? wanted : is_test ? source.validation : source.test;
  check(part != nullptr, "data show: ", request.options.data.directory,
      " has only images to train with: leave --split out, or hold some out by --val-split 0.1");
  return part;
}

// That of EpochLoop, or of Validator.
DistributedSampler sampler_of(const SheetRequest& request, std::int64_t size, int rank, int ranks) {
  if (request.part != SheetPart::kTrain)
    return {size, rank, ranks, {.shuffle = false, .padding = false}};
  const auto seed = static_cast<std::uint64_t>(request.options.seed);
  return {size, rank, ranks, {.shuffle = true, .seed = seed}};
}

std::vector<std::int64_t> shown_indices(const SheetRequest& request, std::int64_t size) {
  const std::int64_t count = std::min<std::int64_t>(request.samples, size);
  std::vector<std::int64_t> indices;
  if (request.part == SheetPart::kTrain) {
    indices = sampler_of(request, size, 0, 1).epoch(0);
    indices.resize(static_cast<std::size_t>(count));
  } else {
    for (std::int64_t i = 0; i < count; ++i) indices.push_back(i * size / count);
  }
  return indices;
}

std::array<std::int64_t, 3> shape_of(const data::Samples& set) {
  const data::ImageShape shape = set.shape();
  return {shape.channels, shape.height, shape.width};
}

std::vector<float> read_numbers(const data::Samples& set, const data::SampleKey& key) {
  const Batch batch = data::empty_batch(1, {.shape = set.shape(), .channels_last = true});
  set.read({&key, 1}, batch);
  const auto* first = batch.input().const_data_ptr<float>();
  return {first, first + set.shape().elements()};
}

template <typename Number>
std::vector<Number> numbers_in(const torch::Tensor& tensor) {
  const torch::Tensor plain = tensor.to(c10::CppTypeToScalarType<Number>::value).contiguous();
  const auto* first = plain.const_data_ptr<Number>();
  return {first, first + plain.numel()};
}

Image picture_of(const data::ImageShape& shape, std::span<const float> numbers,
    const data::Normalization& normalization) {
  return {.size = {shape.width, shape.height},
      .channels = shape.channels,
      .pixels = data::pixels_of(numbers, shape.channels, normalization)};
}

// The looks at a part: as evaluation and, of training images, as training sees it.
struct Looks {
  const data::Samples& part;
  const data::Samples& plain;
  const data::Normalization& normalization;
  std::uint64_t seed;
  int draws;
};

// A row for each input, and the picture of the first that is one.
void look_at_inputs(const Looks& looks, const data::SampleKey& key, SheetSample& sample) {
  const auto inputs = looks.plain.inputs();
  const Batch batch = data::empty_batch(1, {.inputs = inputs});
  looks.plain.read({&key, 1}, batch);
  const auto tensors = batch.input_tensors();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto& [name, sizes, type] = inputs[i];
    sample.numbers.push_back(numbers_of_sample(numbers_in<double>(tensors[i]), sizes));
    sample.numbers.back().input = name;
    if (sample.plain || !is_pictured(sizes)) continue;
    auto pixels = numbers_in<float>(tensors[i][0].permute({1, 2, 0}));
    spread_beyond_pixels(pixels);
    sample.plain = picture_of({sizes[0], sizes[1], sizes[2]}, pixels, looks.normalization);
  }
}

// Numbers that were normalized are pixels' ones.
void look_plainly(const Looks& looks, const data::SampleKey& key, SheetSample& sample) {
  const auto [channels, height, width] = looks.plain.shape();
  std::vector<float> numbers = read_numbers(looks.plain, key);
  const std::vector<std::int64_t> shape{channels, height, width};
  SheetNumbers seen = numbers_of_sample(std::vector<double>(numbers.begin(), numbers.end()), shape);
  const bool is_picture = is_pictured(shape);
  const bool is_spread =
      is_picture && looks.normalization.std.empty() && spread_beyond_pixels(numbers);
  if (is_picture) sample.plain = picture_of(looks.plain.shape(), numbers, looks.normalization);
  if (!is_picture || is_spread) sample.numbers = {std::move(seen)};
}

SheetSample sample_of(const Looks& looks, std::int64_t index) {
  SheetSample sample{
      .index = index, .name = looks.part.name(index), .label = looks.part.label(index)};
  data::SampleKey key{.seed = looks.seed, .epoch = 0, .index = index};
  try {
    if (looks.plain.inputs().empty()) {
      look_plainly(looks, key, sample);
    } else {
      look_at_inputs(looks, key, sample);
    }
    for (; key.epoch < looks.draws; ++key.epoch)
      sample.draws.push_back(
          picture_of(looks.part.shape(), read_numbers(looks.part, key), looks.normalization));
  } catch (const DataError& error) {
    sample.failure = error.what();
  }
  return sample;
}

std::vector<std::int64_t> count_classes(const data::Samples& part) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(part.classes()));
  for (std::int64_t index = 0; index < part.size(); ++index)
    if (const auto label = part.label(index)) ++counts.at(static_cast<std::size_t>(*label));
  return counts;
}

SheetShare share_of(const SheetRequest& request, std::int64_t size, int rank) {
  const auto indices = sampler_of(request, size, rank, request.ranks).epoch(0);
  SheetShare share{.samples = std::ssize(indices)};
  const std::size_t shown = std::min(indices.size(), kFirstIndices);
  share.first.assign(indices.begin(), indices.begin() + static_cast<std::ptrdiff_t>(shown));
  const DistributedSampler own(size, rank, request.ranks, {.shuffle = false, .padding = false});
  if (share.samples > own.share()) share.repeated = indices.back();
  return share;
}

std::vector<std::string> texts_of_inputs(const data::Samples& part) {
  std::vector<std::string> texts;
  for (const data::InputForm& input : part.inputs()) texts.push_back(input.text());
  return texts;
}

std::vector<std::string> names_of_classes(const TrainOptions& options, std::int64_t classes) {
  auto names = class_names_of(options.data);
  if (std::ssize(names) != classes) names.clear();
  return names;
}

}  // namespace

DataSheet make_data_sheet(const SheetRequest& request) {
  const TrainOptions& options = request.options;
  const DatasetSource source = open_parts(options);
  const data::SamplesPointer part = part_of(source, request);
  const bool is_train = request.part == SheetPart::kTrain;
  const bool is_changed = is_train && options.loading.augment != Augment::kNone;
  DataSheet sheet{.size = part->size(),
      .shape = shape_of(*part),
      .inputs = texts_of_inputs(*part),
      .class_names = names_of_classes(options, part->classes()),
      .per_class = count_classes(*part),
      .samples = {},
      .shares = {}};
  const Looks looks{.part = *part,
      .plain = is_train ? *source.unaugmented : *part,
      .normalization = source.normalization,
      .seed = static_cast<std::uint64_t>(options.seed),
      .draws = is_changed ? request.draws : 0};
  for (const std::int64_t index : shown_indices(request, sheet.size))
    sheet.samples.push_back(sample_of(looks, index));
  for (int rank = 0; rank < request.ranks; ++rank)
    sheet.shares.push_back(share_of(request, sheet.size, rank));
  return sheet;
}

}  // namespace lockstep
