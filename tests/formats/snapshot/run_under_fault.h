#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <gtest/gtest.h>
#include <string>

#include "tests/support/temporary_folder.h"

namespace lockstep::testing {

/// The situation in which a save starts.
enum class Scene {
  kFirst,      ///< no snapshot: the folder is made, too
  kLaterStep,  ///< good snapshots of earlier steps
  kSameStep,   ///< a good one of the same step as well
};

inline constexpr std::array kScenes{Scene::kFirst, Scene::kLaterStep, Scene::kSameStep};

std::string name_of_scene(const ::testing::TestParamInfo<Scene>& info);

// Who wrote a snapshot is seen by its bytes.
inline constexpr int kNoSeed = -1, kOldSeed = 1, kNewSeed = 2;

/// A run in which one save meets a fault.
class RunUnderFault {
 public:
  explicit RunUnderFault(Scene scene);

  /// Returns the folder that holds the run's.
  const std::filesystem::path& path() const { return directory_.path(); }
  std::filesystem::path run() const { return directory_.path() / "run"; }

  /// Does what rank 0 does: commits a snapshot of kNewSeed, names it the best, prunes to one.
  void save() const;

  /// Returns the seed of the newest snapshot, whose files must be whole and fit together. None may
  /// have been refused. Without any snapshot, which only Scene::kFirst may leave, it is kOldSeed.
  int newest_seed() const;

  /// Removes what is left over, looks that nothing strange is there, and saves again.
  void expect_that_life_goes_on() const;

 private:
  TemporaryFolder directory_;
  Scene scene_;
};

}  // namespace lockstep::testing
