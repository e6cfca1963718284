#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/data/image_samples.h"
#include "lockstep/data/pixels/pixel_scale.h"
#include "lockstep/data/samples.h"
#include "lockstep/train/options/options.h"

namespace lockstep {

/// The data that a run trains on and is measured on.
struct Datasets {
  data::SamplesPointer train = {};        ///< augmented as asked
  data::SamplesPointer unaugmented = {};  ///< its images once, as evaluation sees them
  std::vector<std::int64_t> labels =
      {};  ///< theirs, if they have classes; none after load_datasets()
  data::SamplesPointer validation = {};    ///< measured on after epochs; without one, `test` is
  data::SamplesPointer test = {};          ///< `validation` itself where there are no other images
  data::Normalization normalization = {};  ///< that the numbers of images went through
  std::vector<std::shared_ptr<const data::FolderSamples>> folders = {};  ///< may have bad files
  std::string remark = {};    ///< about what is not read, or not as it lies there; empty: nothing
  bool is_mere_copy = false;  ///< training samples lie in memory as the model takes them
  std::int64_t bytes_in_memory = 0;
  std::string fingerprint = {};  ///< most likely another one for other training data
};

/// Returns the bytes of memory that this process may use: those of the machine, or of its cgroup.
std::int64_t usable_memory();

/// Throws InvalidArgument for images that vanish in the model's pools, and for a number of outputs
/// or a batch (of the whole set at most) that surely has no room in this much memory.
void check_model_fits(const TrainOptions& options, const data::Samples& set, std::int64_t outputs,
    std::int64_t memory);

/// The properties of a set of noise; the same ones make the same numbers everywhere.
struct NoiseOptions {
  std::int64_t size = 0;
  std::int64_t classes = 1;
  data::ImageShape shape = {};
  bool constant = false;
};

/// Noise in place of images, of mean 0 and variance 1, for measuring a model without an input
/// pipeline. Every sample of every epoch is another one, its class drawn too; or, constant, all
/// batches are one, of class 0.
class NoiseSamples final : public data::SingleSamples {
 public:
  explicit NoiseSamples(const NoiseOptions& options) : options_(options) {}

  std::int64_t size() const override { return options_.size; }
  std::int64_t classes() const override { return options_.classes; }
  data::ImageShape shape() const override { return options_.shape; }
  bool is_constant() const override { return options_.constant; }
  std::string name(std::int64_t index) const override;

 private:
  std::int64_t read_one(const data::SampleKey& key, std::span<float> out) const override;

  NoiseOptions options_;
};

/// Opens the options' data set where a plugin offers it; nothing where none does.
///
/// Throws DataError with the plugin's words if it cannot be opened or is not whole, InvalidArgument
/// for augmentation and sizes, which are for images that we read ourselves.
std::optional<Datasets> open_plugin_data(const TrainOptions& options);

/// Opens a set of tensors, tokens or text; nothing where the options name another.
///
/// Throws as data::open_tensors() and data::open_sequences() do; InvalidArgument for flags that do
/// not fit the set.
std::optional<Datasets> open_tensor_data(const TrainOptions& options);

/// Opens the set that the options name as it lies on disk, neither split nor repeated and without a
/// fingerprint; throws as load_datasets() does.
Datasets open_source(const TrainOptions& options);

/// Returns the names of its classes, by number, where they are known.
std::vector<std::string> class_names_of(const DataSource& data);

/// Takes the share of `--val-split` out of the training images, augmented or not; they become
/// what is validated on, and the test where there is none.
void hold_out(Datasets& source, const TrainOptions& options);

/// Opens the data set of these options: in memory, or a folder of images that are read when their
/// turn comes. The training part is repeated as often as asked, augmented and split as asked;
/// `mock` makes images that fit the model.
///
/// Throws InvalidArgument for an unknown name, a missing folder or flags that do not fit the set,
/// DataError for bad files.
Datasets load_datasets(const TrainOptions& options);

/// Opens it on each rank; hosts may take longer than a collective may to read their files. Where
/// only the tokens themselves say how large the vocabulary is, rank 0 alone reads them all, and
/// tells the others. A collective.
Datasets load_datasets(const TrainOptions& options, const ProcessGroup& world);

/// Returns how many numbers the model gives, as task_outputs() has it: the classes of the data, or
/// as many as asked for. What check_model_fits() refuses is an InvalidArgument, too.
std::int64_t model_outputs(const TrainOptions& options, const Datasets& data);

}  // namespace lockstep
