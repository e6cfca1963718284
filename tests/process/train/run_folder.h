#pragma once

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "tests/process/train/idx_files.h"
#include "tests/process/train/resumable_run.h"

namespace lockstep::testing {

/// Gives one folder to several runs.
class RunFolder : public ::testing::Test {
 protected:
  std::string flags(const std::string& more = "") const {
    return "--model mnist-small --epochs 2 --batch-size 16 --log-interval 1 "
           "--snapshot-interval 5steps " +
           data_.flag() + " " + more;
  }

  // Thousands of steps.
  std::string long_flags(const std::string& more = "") const {
    return flags("--repeat 2000 --epochs 1 " + more);
  }

  using Files = std::map<std::string, std::string>;

  static bool wait_for_lines(const ResumableRun& run, Command& command, std::size_t lines = 1) {
    return command.wait_until([&] { return run.lines() >= lines; });
  }

  static bool wait_for_snapshot(const ResumableRun& run, Command& command) {
    return command.wait_until(
        [&] { return std::filesystem::exists(run.file("snapshots/LATEST")); });
  }

  static void damage_snapshots(const ResumableRun& run) {
    for (const std::string& name : run.snapshot_names())
      if (name.starts_with("step-"))
        std::filesystem::resize_file(run.file("snapshots/" + name + "/state.json"), 9);
  }

  // All files of a run by name, but for what the launcher logs and what a killed owner leaves.
  static Files files_of(const ResumableRun& run) {
    Files files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(run.output()))
      if (entry.is_regular_file()) files[entry.path().string()] = contents(entry.path());
    std::erase_if(files, [](const auto& file) {
      return file.first.find("/logs/") != file.first.npos || file.first.ends_with("/.lock");
    });
    return files;
  }

  static void expect_each_step_once(const ResumableRun& run) {
    std::ifstream file(run.file("metrics.jsonl"));
    std::set<std::string> seen;
    for (std::string text; std::getline(file, text);) {
      const auto line = nlohmann::json::parse(text);
      EXPECT_TRUE(seen.insert(line["split"].dump() + line["step"].dump()).second) << text;
    }
  }

  IdxFiles data_{320, 64};
};

}  // namespace lockstep::testing
