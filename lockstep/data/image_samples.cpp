#include "lockstep/data/image_samples.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/data/gather.h"
#include "lockstep/formats/image/image_reader.h"

namespace lockstep::data {
namespace {

std::string numbered(const InMemoryImages& images, std::int64_t index) {
  return concat(images.name(), ", sample ", index);
}

bool is_whole(const Box& box, ImageSize size) { return box == Box{0, 0, size.width, size.height}; }

// Each thread reads file after file into the same memory.
struct Scratch {
  std::vector<std::uint8_t> bytes;
  Image image;
};

Scratch& scratch() {
  thread_local Scratch own;
  return own;
}

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
  const ImageView whole{size, stored.channels,
      {images_.pixels(key.index), static_cast<std::size_t>(stored.elements())}};
  const Box box = transform_->region(size, key);
  if (is_whole(box, size)) {
    transform_->apply(whole, key, out);
  } else {
    transform_->apply(crop(whole, box).view(), key, out);
  }
  return images_.label(key.index);
}

FolderSamples::FolderSamples(
    ImageFolder folder, std::unique_ptr<const ImageTransform> transform, OnBadImage on_bad)
    : folder_(std::move(folder)), transform_(std::move(transform)), on_bad_(on_bad) {
  check(transform_ != nullptr, "FolderSamples: there must be a transform");
}

ImageShape FolderSamples::shape() const {
  return {3, transform_->output().height, transform_->output().width};
}

std::map<std::int64_t, std::string> FolderSamples::bad() const {
  const std::lock_guard lock(mutex_);
  return bad_;
}

std::int64_t FolderSamples::read_one(const SampleKey& key, std::span<float> out) const {
  if (on_bad_ == OnBadImage::kFail) return decode(key, out);
  if (was_decoded(key, out)) return folder_.label(key.index);
  if (on_bad_ == OnBadImage::kReplace) return replace(key, out);
  std::fill(out.begin(), out.end(), 0.F);
  return kIgnoredTarget;
}

std::int64_t FolderSamples::decode(const SampleKey& key, std::span<float> out) const {
  Scratch& own = scratch();
  folder_.open(key.index, own.bytes);
  const ImageReader reader(own.bytes, folder_.name(key.index));
  reader.read(transform_->region(reader.size(), key), own.image);
  transform_->apply(own.image.view(), key, out);
  return folder_.label(key.index);
}

std::int64_t FolderSamples::replace(SampleKey key, std::span<float> out) const {
  for (std::int64_t tries = 1; tries < size(); ++tries) {
    key.index = (key.index + 1) % size();
    if (was_decoded(key, out)) return folder_.label(key.index);
  }
  throw DataError(concat("loader: no image of ", folder_.directory().string(),
      " can be read: ", bad().begin()->second));
}

bool FolderSamples::was_decoded(const SampleKey& key, std::span<float> out) const {
  try {
    decode(key, out);
    return true;
  } catch (const DataError& error) {
    const std::lock_guard lock(mutex_);
    bad_.emplace(key.index, error.what());
    return false;
  }
}

}  // namespace lockstep::data
