#pragma once

#include <string>

#include "tests/support/temporary_folder.h"

namespace lockstep::testing {

/// A data set in MNIST's format that a small net learns in seconds: the class is where a bright
/// square lies.
class IdxFiles {
 public:
  IdxFiles(int train_images, int test_images) { write(train_images, test_images); }

  /// Writes another set in its place.
  void write(int train_images, int test_images) const;

  /// Returns the flag that trains on it.
  std::string flag() const { return "--data mnist:" + folder_.str(); }

  std::string file(const std::string& name) const { return folder_.file(name); }

 private:
  TemporaryFolder folder_;
};

}  // namespace lockstep::testing
