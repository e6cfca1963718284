#include "lockstep/train/input/data_sheet.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>

#include <ATen/ops/adaptive_avg_pool2d.h>
#include <torch/types.h>

#include "lockstep/core/error.h"
#include "lockstep/data/batch.h"
#include "lockstep/data/distributed_sampler.h"
#include "lockstep/data/pixels/pixel_scale.h"
#include "lockstep/formats/image/png.h"
#include "lockstep/train/input/datasets.h"

namespace lockstep {
namespace {

constexpr std::size_t kFirstNumbers = 8;

constexpr std::size_t kFirstIndices = 8;

// As a run that has images of one of the two kinds uses them for both.
data::SamplesPointer part_of(const Datasets& source, const SheetRequest& request) {
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

Batch read_one(const data::Samples& set, const data::SampleKey& key) {
  data::BatchForm form = data::form_of(set);
  form.channels_last = true;
  const Batch batch = data::empty_batch(1, form);
  set.read({&key, 1}, batch);
  return batch;
}

template <typename Number>
std::vector<Number> numbers_in(const torch::Tensor& tensor) {
  const torch::Tensor plain = tensor.to(c10::CppTypeToScalarType<Number>::value).contiguous();
  const auto* first = plain.const_data_ptr<Number>();
  return {first, first + plain.numel()};
}

// The sizes of an image: channels, height, width. Numbers that were not normalized need not come
// from pixels.
Image picture_of(const torch::Tensor& image, const data::Normalization& normalization) {
  const auto numbers = numbers_in<float>(image.permute({1, 2, 0}));
  return {.size = {image.size(2), image.size(1)},
      .channels = image.size(0),
      .pixels = data::pixels_of(numbers, image.size(0), normalization)};
}

// Returns whether it spread them.
bool spread_if_no_pixels(torch::Tensor& image, const data::Normalization& normalization) {
  if (!normalization.std.empty()) return false;
  image = image.to(torch::kFloat, /*non_blocking=*/false, /*copy=*/true).contiguous();
  return spread_beyond_pixels(
      {image.mutable_data_ptr<float>(), static_cast<std::size_t>(image.numel())});
}

// The looks at a part: as evaluation and, of training images, as training sees it.
struct Looks {
  const data::Samples& part;
  const data::Samples& plain;
  const data::Normalization& normalization;
  std::uint64_t seed;
  int draws;
};

// One number that says the class, of as many classes as are counted.
bool has_classes(const data::Samples& set) {
  const auto targets = set.targets();
  return set.classes() > 0 && targets.size() == 1 && targets.front().sizes.empty();
}

// What is to be learned, where it is no class.
void look_at_targets(const data::Samples& set, const Batch& batch, SheetSample& sample) {
  if (has_classes(set)) return;
  for (const BatchTensor& target : batch.targets) {
    const auto sizes = target.tensor.sizes().slice(1).vec();
    sample.numbers.push_back(numbers_of_sample(numbers_in<double>(target.tensor), sizes));
    sample.numbers.back().tensor = target.name;
  }
}

// A picture, or numbers where they are no pixels' ones. Of a set that names its inputs, the numbers
// of each and the picture of the first that is one.
void look_plainly(const Looks& looks, const data::SampleKey& key, SheetSample& sample) {
  const auto inputs = looks.plain.inputs();
  const auto [channels, height, width] = looks.plain.shape();
  const Batch batch = read_one(looks.plain, key);
  const auto tensors = batch.input_tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const bool is_named = !inputs.empty();
    const auto shape = is_named ? inputs[i].sizes : std::vector{channels, height, width};
    torch::Tensor image = tensors[i][0];
    SheetNumbers seen =
        numbers_of_sample(numbers_in<double>(is_named ? image : image.permute({1, 2, 0})), shape);
    bool is_plain_picture = false;
    if (is_pictured(shape) && !sample.plain) {
      is_plain_picture = !spread_if_no_pixels(image, looks.normalization);
      sample.plain = picture_of(image, looks.normalization);
    }
    if (is_plain_picture && !is_named) continue;
    if (is_named) seen.tensor = inputs[i].name;
    sample.numbers.push_back(std::move(seen));
  }
  look_at_targets(looks.plain, batch, sample);
}

SheetSample sample_of(const Looks& looks, std::int64_t index) {
  SheetSample sample{
      .index = index, .name = looks.part.name(index), .label = looks.part.label(index)};
  data::SampleKey key{.seed = looks.seed, .epoch = 0, .index = index};
  try {
    look_plainly(looks, key, sample);
    for (; key.epoch < looks.draws; ++key.epoch)
      sample.draws.push_back(picture_of(read_one(looks.part, key).input()[0], looks.normalization));
  } catch (const DataError& error) {
    sample.failure = error.what();
  }
  return sample;
}

std::vector<std::int64_t> count_classes(const data::Samples& part) {
  if (!has_classes(part)) return {};
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

}  // namespace

bool is_pictured(const std::vector<std::int64_t>& shape) {
  return shape.size() == 3 && (shape[0] == 1 || shape[0] == 3) && shape[1] > 1 && shape[2] > 1;
}

SheetNumbers numbers_of_sample(
    std::span<const double> numbers, const std::vector<std::int64_t>& shape) {
  SheetNumbers seen{.shape = shape};
  const std::size_t shown = std::min(numbers.size(), kFirstNumbers);
  seen.first.assign(numbers.begin(), numbers.begin() + static_cast<std::ptrdiff_t>(shown));
  seen.mean =
      std::accumulate(numbers.begin(), numbers.end(), 0.0) / static_cast<double>(numbers.size());
  if (std::ranges::any_of(numbers, [](double number) { return std::isnan(number); })) {
    seen.least = seen.mean = seen.most = std::numeric_limits<double>::quiet_NaN();
  } else {
    const auto [least, most] = std::ranges::minmax(numbers);
    seen.least = least;
    seen.most = most;
  }
  return seen;
}

// A hair beyond black and white is rounding.
bool spread_beyond_pixels(std::span<float> numbers) {
  constexpr float kHair = 1e-3F;
  const auto [least, most] = std::ranges::minmax(numbers);
  if (least >= -kHair && most <= 1 + kHair) return false;
  const float width = most > least ? most - least : 1;
  for (float& number : numbers) number = (number - least) / width;
  return true;
}

DataSheet make_data_sheet(const SheetRequest& request) {
  const TrainOptions& options = request.options;
  Datasets source = open_source(options);
  hold_out(source, options);
  const data::SamplesPointer part = part_of(source, request);
  const bool is_train = request.part == SheetPart::kTrain;
  const bool is_changed = is_train && options.loading.augment != Augment::kNone;
  const auto [channels, height, width] = part->shape();
  DataSheet sheet{.size = part->size(),
      .shape = {channels, height, width},
      .inputs = {},
      .targets = {},
      .class_names = class_names_of(options.data),
      .per_class = count_classes(*part),
      .remark = source.remark,
      .samples = {},
      .shares = {}};
  for (const data::TensorForm& input : part->inputs()) sheet.inputs.push_back(input.text());
  if (sheet.per_class.empty())
    for (const data::TensorForm& target : part->targets()) sheet.targets.push_back(target.text());
  if (std::ssize(sheet.class_names) != part->classes()) sheet.class_names.clear();
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

std::vector<std::uint8_t> sample_picture(
    const data::Samples& set, std::int64_t index, const data::Normalization& normalization) {
  const auto inputs = set.inputs();
  const auto found = std::ranges::find_if(
      inputs, [](const data::TensorForm& input) { return is_pictured(input.sizes); });
  if (!inputs.empty() && found == inputs.end()) return {};
  const auto place = static_cast<std::size_t>(found - inputs.begin());
  torch::Tensor image = read_one(set, {.index = index}).input_tensors()[place][0].to(torch::kFloat);
  if (image.size(0) != 3) image = image.slice(0, 0, 1);
  spread_if_no_pixels(image, normalization);
  const std::int64_t longest = std::max(image.size(1), image.size(2));
  constexpr std::int64_t kMostSide = 256;
  const auto side = [&](int dimension) {
    return std::max<std::int64_t>(1, image.size(dimension) * kMostSide / longest);
  };
  if (longest > kMostSide)
    image = at::adaptive_avg_pool2d(image.unsqueeze(0), {side(1), side(2)})[0];
  return encode_png(picture_of(image, normalization).view());
}

}  // namespace lockstep
