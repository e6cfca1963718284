#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/process/train_idx_files.h"
#include "tests/support/temporary_folder.h"

namespace lockstep::testing {

/// Gives tests a small data set, and flags to train on it.
class ShortRuns : public ::testing::Test {
 protected:
  using Words = std::vector<std::string>;

  // The last batch of an epoch has fewer samples than the others.
  void SetUp() override { write_idx_files(data_.str(), 204, 40); }

  /// Gives the flags of a run that saves in the middle of epochs and of log intervals.
  Words flags(const Words& more = {}) const {
    Words words = {
        "--data", "mnist:" + data_.str(), "--batch-size", "8", "--epochs", "4", "--log-interval",
        "4",      "--snapshot-interval",  "3steps"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  TemporaryFolder data_;
};

}  // namespace lockstep::testing
