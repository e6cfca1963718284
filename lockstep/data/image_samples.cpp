#include "lockstep/data/image_samples.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/data/batch.h"
#include "lockstep/formats/image/image_reader.h"

namespace lockstep::data {
namespace {

constexpr std::int64_t kChannelsOfDecoded = 3;

// Bytes taken from a budget, given back at the end unless they were spent.
class Reservation {
 public:
  Reservation(MemoryBudget& budget, std::int64_t bytes)
      : budget_(budget), bytes_(budget.take(bytes) ? bytes : 0) {}
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  ~Reservation() { budget_.give_back(bytes_); }

  explicit operator bool() const { return bytes_ > 0; }
  void spend() { bytes_ = 0; }

 private:
  MemoryBudget& budget_;
  std::int64_t bytes_;
};

DecodedImages::Pointer decoded(const std::function<Image()>& decode) {
  try {
    return std::make_shared<const Image>(decode());
  } catch (const DataError&) {
    return nullptr;  // perhaps damaged only where nobody looks
  }
}

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

void apply_to_region(const ImageTransform& transform, const ImageView& whole, const SampleKey& key,
    std::span<float> out) {
  const Box box = transform.region(whole.size, key);
  if (is_whole(box, whole.size)) return transform.apply(whole, key, out);
  Image& part = scratch().image;
  crop(whole, box, part);
  transform.apply(part.view(), key, out);
}

}  // namespace

bool MemoryBudget::take(std::int64_t bytes) {
  std::int64_t left = left_;
  while (bytes <= left) {
    if (left_.compare_exchange_weak(left, left - bytes)) return true;
  }
  return false;
}

DecodedImages::Pointer DecodedImages::kept(std::int64_t index) const {
  const std::lock_guard lock(mutex_);
  const auto found = images_.find(index);
  return found == images_.end() ? nullptr : found->second;
}

DecodedImages::Pointer DecodedImages::keep(
    std::int64_t index, ImageSize size, const std::function<Image()>& decode) {
  const std::int64_t pixels = size.width * size.height * kChannelsOfDecoded;
  Reservation room(*budget_, pixels + kBytesBesidePixels);
  if (!room) return nullptr;
  Pointer image = decoded(decode);
  if (image == nullptr) return nullptr;
  const std::lock_guard lock(mutex_);
  // Another thread may have been faster: its image stays, and this one's room is given back.
  if (images_.emplace(index, image).second) room.spend();
  return image;
}

StoredSamples::StoredSamples(InMemoryImages images, const Normalization& normalization)
    : images_(std::move(images)), scale_(images_.shape().channels, normalization) {}

std::string StoredSamples::name(std::int64_t index) const { return numbered(images_, index); }

void StoredSamples::read(std::span<const SampleKey> keys, const Batch& out) const {
  std::vector<std::int64_t> indices;
  indices.reserve(keys.size());
  for (const SampleKey& key : keys) indices.push_back(key.index);
  gather_images_into(out.input(), images_, indices, scale_);
  gather_labels_into(out.target(), images_, indices);
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
  apply_to_region(*transform_, whole, key, out);
  return images_.label(key.index);
}

FolderSamples::FolderSamples(ImageFolder folder, std::unique_ptr<const ImageTransform> transform,
    OnBadImage on_bad, std::shared_ptr<MemoryBudget> budget)
    : files_(new Files{std::move(folder), std::move(transform), on_bad}) {
  check(files_->transform != nullptr, "FolderSamples: there must be a transform");
  if (budget != nullptr) files_->decoded.emplace(std::move(budget));
}

ImageShape FolderSamples::shape() const {
  const ImageSize size = files_->transform->output();
  return {3, size.height, size.width};
}

SamplesPointer FolderSamples::within(std::span<const std::int64_t> indices) const {
  if (files_->on_bad != OnBadImage::kReplace) return nullptr;
  std::vector<std::int64_t> part(indices.begin(), indices.end());
  std::sort(part.begin(), part.end());
  const auto is_foreign = [&](std::int64_t index) {
    return part_ && !std::binary_search(part_->begin(), part_->end(), index);
  };
  std::erase_if(part, is_foreign);
  auto narrowed = std::make_shared<FolderSamples>(*this);
  narrowed->part_ = std::move(part);
  return narrowed;
}

std::map<std::int64_t, std::string> FolderSamples::bad() const {
  const std::lock_guard lock(files_->mutex);
  return files_->bad;
}

std::int64_t FolderSamples::read_one(const SampleKey& key, std::span<float> out) const {
  if (files_->on_bad == OnBadImage::kFail) return decode(key, out);
  if (was_decoded(key, out)) return files_->folder.label(key.index);
  if (files_->on_bad == OnBadImage::kReplace) return replace(key, out);
  std::fill(out.begin(), out.end(), 0.F);
  return kIgnoredTarget;
}

std::int64_t FolderSamples::decode(const SampleKey& key, std::span<float> out) const {
  if (const auto kept = files_->decoded ? files_->decoded->kept(key.index) : nullptr) {
    apply_to_region(*files_->transform, kept->view(), key, out);
  } else {
    read_file(key, out);
  }
  return files_->folder.label(key.index);
}

void FolderSamples::read_file(const SampleKey& key, std::span<float> out) const {
  Scratch& own = scratch();
  files_->folder.open(key.index, own.bytes);
  const ImageReader reader(own.bytes, files_->folder.name(key.index));
  if (files_->decoded) {
    const auto kept =
        files_->decoded->keep(key.index, reader.size(), [&] { return reader.read(); });
    if (kept) return apply_to_region(*files_->transform, kept->view(), key, out);
  }
  reader.read(files_->transform->region(reader.size(), key), own.image);
  files_->transform->apply(own.image.view(), key, out);
}

std::int64_t FolderSamples::after(std::int64_t index) const {
  if (!part_) return (index + 1) % size();
  const auto next = std::upper_bound(part_->begin(), part_->end(), index);
  return next == part_->end() ? part_->front() : *next;
}

std::int64_t FolderSamples::replace(SampleKey key, std::span<float> out) const {
  const std::int64_t files = part_ ? std::ssize(*part_) : size();
  for (std::int64_t tries = 1; tries < files; ++tries) {
    key.index = after(key.index);
    if (was_decoded(key, out)) return files_->folder.label(key.index);
  }
  throw DataError(concat("loader: no image of ", files_->folder.directory().string(),
      part_ ? concat(", of this part of ", files, ",") : "",
      " can be read: ", bad().begin()->second));
}

bool FolderSamples::was_decoded(const SampleKey& key, std::span<float> out) const {
  try {
    decode(key, out);
    return true;
  } catch (const DataError& error) {
    const std::lock_guard lock(files_->mutex);
    files_->bad.emplace(key.index, error.what());
    return false;
  }
}

}  // namespace lockstep::data
