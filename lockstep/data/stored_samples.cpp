#include "lockstep/data/stored_samples.h"

#include <utility>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/data/gather.h"

namespace lockstep::data {
namespace {

std::string numbered(const InMemoryImages& images, std::int64_t index) {
  return concat(images.name(), ", sample ", index);
}

bool is_whole(const Box& box, ImageSize size) { return box == Box{0, 0, size.width, size.height}; }

}  // namespace

StoredSamples::StoredSamples(InMemoryImages images, const Normalization& normalization)
    : images_(std::move(images)), scale_(images_.shape().channels, normalization) {}

std::string StoredSamples::name(std::int64_t index) const { return numbered(images_, index); }

void StoredSamples::read(std::span<const SampleKey> keys, const Batch& out) const {
  std::vector<std::int64_t> indices;
  indices.reserve(keys.size());
  for (const SampleKey& key : keys) indices.push_back(key.index);
  gather_images_into(out.data, images_, indices, scale_);
  gather_labels_into(out.target, images_, indices);
}

TransformedSamples::TransformedSamples(
    InMemoryImages images, std::unique_ptr<const ImageTransform> transform)
    : images_(std::move(images)), transform_(std::move(transform)) {
  check(transform_ != nullptr, "TransformedSamples: there must be a transform");
}

ImageShape TransformedSamples::shape() const {
  const ImageSize size = transform_->output();
  return {images_.shape().channels, size.height, size.width};
}

std::string TransformedSamples::name(std::int64_t index) const { return numbered(images_, index); }

std::int64_t TransformedSamples::read_one(const SampleKey& key, std::span<float> out) const {
  const ImageShape& stored = images_.shape();
  const ImageSize size{stored.width, stored.height};
  const ImageView whole{
      size,
      stored.channels,
      {images_.pixels(key.index), static_cast<std::size_t>(stored.elements())}};
  const Box box = transform_->region(size, key);
  if (is_whole(box, size)) {
    transform_->apply(whole, key, out);
  } else {
    transform_->apply(crop(whole, box).view(), key, out);
  }
  return images_.label(key.index);
}

}  // namespace lockstep::data
