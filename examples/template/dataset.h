#pragma once

#include <string>

#include <lockstep/lockstep.h>

/// Holds the images to train with, augmented, and those to test with.
struct DataSets {
  lockstep::data::SamplesPointer train, test;
};

/// Opens the data set in a folder. Put your own in here: anything that is a
/// lockstep::data::Samples.
DataSets open_data(const std::string& folder);
