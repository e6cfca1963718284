#pragma once

#include <lockstep/lockstep.h>
#include <string>

/// The training images, augmented, and the test images.
struct DataSets {
  lockstep::data::SamplesPointer train, test;
};

/// Opens the data set in a folder. Replace it by your own: anything that is a
/// lockstep::data::Samples.
DataSets open_data(const std::string& folder);
