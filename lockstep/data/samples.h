#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/batch.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/transforms/transform.h"

namespace lockstep::data {

class StoredSamples;

/// An image in memory; without a set there is none.
struct StoredImage {
  const StoredSamples* set = nullptr;
  std::int64_t index = 0;
};

/// A labelled set as a Loader reads it: images in the form that a model takes, wherever they come
/// from.
///
/// Many threads may read at once; what they get depends on the key alone.
class Samples {
 public:
  virtual ~Samples() = default;

  virtual std::int64_t size() const = 0;

  /// Returns the number of classes; 0 where the samples have none, or it is not known.
  virtual std::int64_t classes() const = 0;

  /// Returns the shape of the images that are read; of a set that names its inputs, a row of all
  /// numbers of a sample.
  virtual ImageShape shape() const = 0;

  /// Returns the tensors that a sample consists of, where the set names them; none: it is an image.
  virtual std::vector<TensorForm> inputs() const { return {}; }

  /// Returns the tensors that are to be learned of a sample; there may be none.
  virtual std::vector<TensorForm> targets() const { return {kClassTarget}; }

  /// Names a sample, for messages: its file, or the set and its number.
  virtual std::string name(std::int64_t index) const = 0;

  /// Returns the class of a sample; nothing where it has none, or only reading it tells.
  virtual std::optional<std::int64_t> label(std::int64_t index) const;

  /// Writes these samples into a batch of as many, of shape() in NCHW or NHWC memory, or of
  /// inputs(), and of targets(); inputs of float may be of bf16.
  ///
  /// Throws DataError that names the sample whose bytes are bad, InvalidArgument for an index
  /// outside [0, size()).
  virtual void read(std::span<const SampleKey> keys, const Batch& out) const = 0;

  /// Returns this set with these samples as the only replacements of unreadable ones, so that the
  /// parts of a split stay apart. Null if the set never replaces a sample.
  virtual std::shared_ptr<const Samples> within(std::span<const std::int64_t> indices) const;

  /// Returns the image in memory that this sample is, but for its scale, in every epoch; none where
  /// it is read or changed. All samples of a set are of one stored set, or of none.
  virtual StoredImage stored(std::int64_t index) const;

  /// Tells whether every batch of a size is the same: that of the first samples.
  virtual bool is_constant() const { return false; }
};

using SamplesPointer = std::shared_ptr<const Samples>;

/// Returns the form of batches that a set can be read into, on the host in NCHW; float.
BatchForm form_of(const Samples& set);

/// A set that makes one sample at a time.
class SingleSamples : public Samples {
 public:
  void read(std::span<const SampleKey> keys, const Batch& out) const final;

 private:
  /// Writes height x width x channels numbers and returns the class.
  virtual std::int64_t read_one(const SampleKey& key, std::span<float> out) const = 0;

  std::int64_t read_named(const SampleKey& key, std::span<float> out) const;
};

/// Refuses an index outside of a set.
void check_index(std::int64_t index, std::int64_t size);

/// Some samples of a set in an order of their own: a part of a split. None of another part stands
/// in for one of its own.
class SampleSubset final : public Samples {
 public:
  /// An index outside of the set, or none at all, is an InvalidArgument.
  SampleSubset(SamplesPointer set, std::vector<std::int64_t> indices);

  std::int64_t size() const override { return std::ssize(indices_); }
  std::int64_t classes() const override { return set_->classes(); }
  ImageShape shape() const override { return set_->shape(); }
  std::vector<TensorForm> inputs() const override { return set_->inputs(); }
  std::vector<TensorForm> targets() const override { return set_->targets(); }
  std::string name(std::int64_t index) const override { return set_->name(of_set(index)); }
  std::optional<std::int64_t> label(std::int64_t index) const override {
    return set_->label(of_set(index));
  }
  void read(std::span<const SampleKey> keys, const Batch& out) const override;
  SamplesPointer within(std::span<const std::int64_t> indices) const override;
  StoredImage stored(std::int64_t index) const override { return set_->stored(of_set(index)); }
  bool is_constant() const override { return set_->is_constant(); }

 private:
  std::int64_t of_set(std::int64_t index) const;

  SamplesPointer set_;
  std::vector<std::int64_t> indices_;
};

/// A set several times over; each time counts as an epoch of its own, so a transform draws anew.
class RepeatedSamples final : public Samples {
 public:
  RepeatedSamples(SamplesPointer set, std::int64_t times);

  std::int64_t size() const override { return set_->size() * times_; }
  std::int64_t classes() const override { return set_->classes(); }
  ImageShape shape() const override { return set_->shape(); }
  std::vector<TensorForm> inputs() const override { return set_->inputs(); }
  std::vector<TensorForm> targets() const override { return set_->targets(); }
  std::string name(std::int64_t index) const override { return set_->name(index % set_->size()); }
  std::optional<std::int64_t> label(std::int64_t index) const override {
    return set_->label(index % set_->size());
  }
  void read(std::span<const SampleKey> keys, const Batch& out) const override;
  SamplesPointer within(std::span<const std::int64_t> indices) const override;
  StoredImage stored(std::int64_t index) const override {
    return set_->stored(index % set_->size());
  }
  bool is_constant() const override { return set_->is_constant(); }

 private:
  SamplesPointer set_;
  std::int64_t times_;
};

}  // namespace lockstep::data
