#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/data/image_samples.h"
#include "lockstep/data/samples.h"
#include "lockstep/train/options/options.h"

namespace lockstep {

/// A data set as it lies on disk, before it is split and repeated.
struct DatasetSource {
  data::SamplesPointer train = {};        ///< augmented as asked
  data::SamplesPointer unaugmented = {};  ///< the same images as evaluation sees them
  std::vector<std::int64_t> labels = {};  ///< theirs
  data::SamplesPointer validation = {};   ///< absent if the set has none, as the next
  data::SamplesPointer test = {};
  data::Normalization normalization =
      {};  ///< of the numbers that come out; those of a plugin: none
  std::vector<std::shared_ptr<const data::FolderSamples>> folders = {};
  std::string remark = {};  ///< about what of the folder is not read; empty: nothing
  bool is_mere_copy = false;
  std::int64_t bytes_in_memory = 0;
};

/// Opens the set that the options name; throws as load_datasets() does.
DatasetSource open_source(const TrainOptions& options);

/// Returns the names of its classes, by number, where they are known.
std::vector<std::string> class_names_of(const DataSource& data);

/// Takes the share of `--val-split` out of the training images, augmented or not; they become
/// what is validated on, and the test where there is none.
void hold_out(DatasetSource& source, const TrainOptions& options);

}  // namespace lockstep
