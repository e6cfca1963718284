#include "lockstep/data/device_images.h"

#include <algorithm>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/take.h>

#include "lockstep/device/host_tensor.h"

namespace lockstep::data {
namespace {

constexpr std::int64_t kValues = 256;  // of a byte
constexpr std::int64_t kMostBytes = std::int64_t{1} << 30;

torch::Tensor pixels_of(const InMemoryImages& images) {
  const ImageShape& shape = images.shape();
  // from_blob() wants memory that may be written; nobody does.
  return at::from_blob(const_cast<std::uint8_t*>(images.pixels(0)),
      {images.stored_images(), shape.height, shape.width, shape.channels}, on_host(torch::kByte));
}

torch::Tensor classes_of(const InMemoryImages& images) {
  torch::Tensor classes = at::empty({images.stored_images()}, on_host(torch::kLong));
  auto* const out = classes.data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < images.stored_images(); ++i) out[i] = images.label(i);
  return classes;
}

// Every value of every channel, in a row.
std::vector<std::uint8_t> all_pixels(std::int64_t channels) {
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(kValues * channels));
  for (std::size_t i = 0; i < pixels.size(); ++i)
    pixels[i] = static_cast<std::uint8_t>(static_cast<std::int64_t>(i) / channels);
  return pixels;
}

// What each of them becomes.
torch::Tensor table_of(const PixelScale& scale, torch::ScalarType type) {
  const std::vector<std::uint8_t> pixels = all_pixels(scale.channels());
  torch::Tensor table = at::empty({std::ssize(pixels)}, on_host(type));
  if (type == torch::kFloat) {
    scale.to_float(pixels.data(), table.data_ptr<float>(), std::ssize(pixels));
  } else {
    auto* const bits = reinterpret_cast<std::uint16_t*>(table.data_ptr<torch::BFloat16>());
    scale.to_bfloat16(pixels.data(), bits, std::ssize(pixels));
  }
  return table;
}

}  // namespace

DeviceImages::DeviceImages(const StoredSamples& set, torch::Device device)
    : pixels_(pixels_of(set.images()).to(device)),
      classes_(classes_of(set.images()).to(device)),
      floats_(table_of(set.scale(), torch::kFloat).to(device)),
      bfloats_(table_of(set.scale(), torch::kBFloat16).to(device)),
      channels_(at::arange(set.shape().channels, on_host(torch::kLong)).to(device)),
      copier_(device) {}

torch::Tensor DeviceImages::on_device(std::span<const std::int64_t> indices) const {
  for (const std::int64_t index : indices) check_index(index, pixels_.size(0));
  const torch::Tensor host =
      at::empty({std::ssize(indices)}, on_host(torch::kLong).pinned_memory(!device().is_cpu()));
  std::copy(indices.begin(), indices.end(), host.data_ptr<std::int64_t>());
  return copier_(host);
}

// Values by table: a device that multiplied and added would round otherwise than the host.
Batch DeviceImages::batch(
    std::span<const std::int64_t> indices, torch::ScalarType dtype, bool channels_last) const {
  const at::NoGradGuard no_gradients;
  const torch::Tensor chosen = on_device(indices);
  const torch::Tensor bytes = pixels_.index_select(0, chosen).to(torch::kLong);
  const torch::Tensor places = bytes.mul_(channels_.size(0)).add_(channels_);
  const torch::Tensor images =
      at::take(dtype == torch::kBFloat16 ? bfloats_ : floats_, places).permute({0, 3, 1, 2});
  const torch::Tensor labels = classes_.index_select(0, chosen);
  if (channels_last) return {images, labels};
  // By way of a row, for the usual strides even of one channel.
  return {images.contiguous().view({-1}).view(images.sizes()), labels};
}

std::shared_ptr<const DeviceImages> ResidentSets::of(const Samples& samples) {
  const StoredSamples* const set = samples.size() > 0 ? samples.stored(0).set : nullptr;
  if (device_.is_cpu() || set == nullptr) return nullptr;
  if (set->images().stored_images() * set->shape().elements() > kMostBytes) return nullptr;
  auto& images = sets_[set];
  if (!images) images = std::make_shared<const DeviceImages>(*set, device_);
  return images;
}

}  // namespace lockstep::data
