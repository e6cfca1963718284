#include "lockstep/data/gather.h"

#include "lockstep/core/error.h"

namespace lockstep::data {
namespace {

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

}  // namespace lockstep::data
