#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/data/image_samples.h"
#include "lockstep/data/pixels/pixel_scale.h"
#include "lockstep/data/samples.h"
#include "lockstep/train/input/dataset_sources.h"
#include "lockstep/train/options/options.h"

namespace lockstep {

/// The data that a run trains on and is measured on.
struct Datasets {
  data::SamplesPointer train;
  data::SamplesPointer validation;   ///< measured on after epochs; without one, `test` is
  data::SamplesPointer test;         ///< `validation` itself where there are no other images
  data::SamplesPointer unaugmented;  ///< the training images once, as evaluation sees them
  std::vector<std::shared_ptr<const data::FolderSamples>>
      folders;                ///< those that may have bad files
  std::string remark = {};    ///< about what of a folder is not read; empty: nothing
  bool is_mere_copy = false;  ///< training images lie in memory as the model takes them
  std::int64_t bytes_in_memory = 0;
  data::Normalization normalization = {};  ///< that the numbers of images went through
  std::string fingerprint = {};  ///< of the labels and some images of the training set, as it lies
};

/// Opens the data set of these options: in memory, or a folder of images that are read when their
/// turn comes. The training part is repeated as often as asked, augmented and split as asked;
/// `mock` makes images that fit the model.
///
/// Throws InvalidArgument for an unknown name, a missing folder or flags that do not fit the set,
/// DataError for bad files.
Datasets load_datasets(const TrainOptions& options);

/// Returns the number of classes of the model: those of the data, or as many as asked for. Fewer
/// than the data have are an InvalidArgument; so is what check_model_fits() refuses.
std::int64_t model_classes(const TrainOptions& options, const Datasets& data);

/// Returns a short text that is most likely different for other training data: of all labels, and
/// of some images that lie in memory, or some names of files; of inputs that a set names also their
/// names, shapes and types. It finds mistakes, not forgery.
std::string data_fingerprint(const DatasetSource& source);

}  // namespace lockstep
