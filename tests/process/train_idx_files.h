#pragma once

#include <string>

namespace lockstep::testing {

/// Writes a data set in MNIST's format that a small net learns in seconds: the class is where a
/// bright square lies.
void write_idx_files(const std::string& folder, int train_images, int test_images);

}  // namespace lockstep::testing
