#include "lockstep/data/batch.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include <ATen/ops/empty_like.h>

#include "lockstep/core/error.h"

namespace lockstep {

std::vector<torch::Tensor> Batch::input_tensors() const {
  std::vector<torch::Tensor> tensors;
  for (const BatchTensor& input : inputs) tensors.push_back(input.tensor);
  return tensors;
}

namespace data {
namespace {

// A view, such as the one that autograd keeps, has its own tensor but shares the storage.
bool is_ours_alone(const torch::Tensor& tensor) {
  return tensor.defined() && tensor.use_count() == 1 && tensor.has_storage() &&
         tensor.storage().use_count() == 1 && !tensor.requires_grad();
}

bool are_rows(const torch::Tensor& tensor, std::int64_t batch, torch::IntArrayRef sample,
    torch::ScalarType type) {
  return tensor.defined() && tensor.device().is_cpu() && tensor.dim() > 0 &&
         tensor.size(0) == batch && tensor.sizes().slice(1) == sample && tensor.is_contiguous() &&
         tensor.scalar_type() == type;
}

torch::Tensor pinned_if(const torch::Tensor& tensor, bool pinned) {
  return pinned ? at::empty_like(tensor, tensor.options().pinned_memory(true)) : tensor;
}

std::vector<std::int64_t> row_sizes(std::int64_t batch, const TensorForm& input) {
  std::vector<std::int64_t> sizes{batch};
  sizes.insert(sizes.end(), input.sizes.begin(), input.sizes.end());
  return sizes;
}

torch::ScalarType type_of(const TensorForm& input, const BatchForm& form) {
  return input.type == torch::kFloat ? form.dtype : input.type;
}

bool has_named_inputs(const Batch& batch, std::int64_t size, const BatchForm& form) {
  return std::ranges::equal(
      batch.inputs, form.inputs, [&](const BatchTensor& own, const TensorForm& input) {
        return are_rows(own.tensor, size, input.sizes, type_of(input, form));
      });
}

bool has_targets(const Batch& batch, std::int64_t size, const BatchForm& form) {
  return std::ranges::equal(
      batch.targets, form.targets, [&](const BatchTensor& own, const TensorForm& target) {
        return are_rows(own.tensor, size, target.sizes, target.type);
      });
}

constexpr std::size_t kImagesAhead = 4;
constexpr std::int64_t kCacheLine = 64;

std::vector<std::int64_t> strides_of(const ImageShape& shape, bool channels_last) {
  if (channels_last) return {shape.elements(), 1, shape.width * shape.channels, shape.channels};
  return {shape.elements(), shape.height * shape.width, shape.width, 1};
}

std::vector<std::int64_t> sizes_of(std::int64_t batch, const ImageShape& shape) {
  return {batch, shape.channels, shape.height, shape.width};
}

void check_indices(const InMemoryImages& images, std::span<const std::int64_t> indices) {
  for (const std::int64_t index : indices) {
    check(0 <= index && index < images.size(), "gather: index out of range: ", index, " of ",
        images.size());
  }
}

// The images of a batch lie anywhere in memory: asking for the next ones early halves the time and
// more.
void prefetch(const std::uint8_t* pixels, std::int64_t bytes) {
  for (std::int64_t at = 0; at < bytes + kCacheLine - 1; at += kCacheLine)
    __builtin_prefetch(pixels + at);
}

template <typename Out, typename Convert>
void gather(const InMemoryImages& images, std::span<const std::int64_t> indices, Out* out,
    std::int64_t planes, const Convert& convert) {
  const std::int64_t elements = images.shape().elements();
  std::vector<Out> together(planes > 1 ? static_cast<std::size_t>(elements) : 0);
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (i + kImagesAhead < indices.size())
      prefetch(images.pixels(indices[i + kImagesAhead]), elements);
    convert(images.pixels(indices[i]), planes > 1 ? together.data() : out, elements);
    if (planes > 1) copy_planes(std::span<const Out>(together), planes, out);
    out += elements;
  }
}

}  // namespace

std::int64_t TensorForm::elements() const {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

std::string TensorForm::text() const {
  std::string type_text = type == torch::kFloat ? "float" : c10::toString(type);
  if (type == torch::kLong) type_text = "int64";
  if (type == torch::kByte) type_text = "uint8";
  if (type == torch::kBool) type_text = "bool";
  return concat(name, " ", torch::IntArrayRef(sizes), " ", type_text);
}

Batch empty_batch(std::int64_t size, const BatchForm& form) {
  const auto rows = [&](const TensorForm& sample, torch::ScalarType type) {
    const auto options = torch::TensorOptions().dtype(type);
    return pinned_if(torch::empty(row_sizes(size, sample), options), form.pinned);
  };
  Batch batch;
  if (form.inputs.empty()) {
    auto images = empty_images(size, form.shape, form.dtype, form.channels_last);
    batch.inputs.push_back({"input", pinned_if(images, form.pinned)});
  }
  for (const TensorForm& input : form.inputs)
    batch.inputs.push_back({input.name, rows(input, type_of(input, form))});
  for (const TensorForm& target : form.targets)
    batch.targets.push_back({target.name, rows(target, target.type)});
  return batch;
}

bool has_form(const Batch& batch, std::int64_t size, const BatchForm& form) {
  if (!has_targets(batch, size, form)) return false;
  if (!form.inputs.empty()) return has_named_inputs(batch, size, form);
  return batch.inputs.size() == 1 && batch.input().scalar_type() == form.dtype &&
         are_images(batch.input(), size, form.shape, form.channels_last);
}

bool is_held_by_nobody_else(const Batch& batch) {
  const auto is_alone = [](const BatchTensor& each) { return is_ours_alone(each.tensor); };
  return !batch.is_empty() && std::ranges::all_of(batch.inputs, is_alone) &&
         std::ranges::all_of(batch.targets, is_alone);
}

bool can_be_reused(const Batch& batch, std::int64_t size, const BatchForm& form) {
  // A device may still read pinned memory that nobody holds: LibTorch's allocator knows.
  return !form.pinned && is_held_by_nobody_else(batch) && has_form(batch, size, form);
}

torch::Tensor empty_images(
    std::int64_t batch, const ImageShape& shape, torch::ScalarType dtype, bool channels_last) {
  check(batch >= 0, "empty_images: the batch must not be negative: ", batch);
  return torch::empty_strided(sizes_of(batch, shape), strides_of(shape, channels_last),
      torch::TensorOptions().dtype(dtype));
}

bool are_images(
    const torch::Tensor& tensor, std::int64_t batch, const ImageShape& shape, bool channels_last) {
  return tensor.defined() && tensor.device().is_cpu() &&
         tensor.sizes() == torch::IntArrayRef(sizes_of(batch, shape)) &&
         tensor.strides() == torch::IntArrayRef(strides_of(shape, channels_last));
}

std::int64_t planes_of(const torch::Tensor& images, std::int64_t batch, const ImageShape& shape) {
  check(images.defined(), "gather: the output must be a tensor");
  if (are_images(images, batch, shape, true)) return 1;
  check(are_images(images, batch, shape, false),
      "gather: the output must be a CPU tensor of shape ",
      torch::IntArrayRef(sizes_of(batch, shape)), " and strides ",
      torch::IntArrayRef(strides_of(shape, false)), " or ",
      torch::IntArrayRef(strides_of(shape, true)), ": ", images.sizes(), " and ", images.strides());
  return shape.channels;
}

void gather_images_into(const torch::Tensor& out, const InMemoryImages& images,
    std::span<const std::int64_t> indices, const PixelScale& scale) {
  const auto planes = planes_of(out, std::ssize(indices), images.shape());
  check_indices(images, indices);
  check(scale.channels() == images.shape().channels,
      "gather: the scale must have the channels of the images: ", scale.channels(), " for ",
      images.shape().channels);
  if (out.scalar_type() == torch::kFloat) {
    gather(images, indices, out.data_ptr<float>(), planes,
        [&](auto... run) { scale.to_float(run...); });
  } else {
    check(out.scalar_type() == torch::kBFloat16,
        "gather: the output must be float or bf16: ", out.scalar_type());
    auto* bits = reinterpret_cast<std::uint16_t*>(out.data_ptr<torch::BFloat16>());
    gather(images, indices, bits, planes, [&](auto... run) { scale.to_bfloat16(run...); });
  }
}

void gather_labels_into(
    const torch::Tensor& out, const InMemoryImages& images, std::span<const std::int64_t> indices) {
  check(out.defined() && out.device().is_cpu() && out.scalar_type() == torch::kLong &&
            out.dim() == 1 && out.size(0) == std::ssize(indices) && out.is_contiguous(),
      "gather: the labels must be a contiguous int64 CPU tensor of ", indices.size(), " elements");
  check_indices(images, indices);
  auto* labels = out.data_ptr<std::int64_t>();
  for (const std::int64_t index : indices) *labels++ = images.label(index);
}

}  // namespace data
}  // namespace lockstep
