#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/formats/weights/tensor_file.h"
#include "lockstep/nn/named_state.h"
#include "lockstep/snapshot/optimizer_state.h"
#include "lockstep/snapshot/snapshot_folder.h"
#include "lockstep/snapshot/tensor_group.h"

namespace lockstep {

/// Which of the tensors of a snapshot a reader is to give; all of them, whole, unless it says so.
struct WantedTensors {
  /// Parameters and buffers of which only these elements are wanted, and of what the optimizer
  /// keeps for them: in the sizes of TensorRange::sizes(). Nothing is given where a range has none.
  TensorRanges ranges = {};
  std::optional<std::set<std::string>> names = {};  ///< the only parameters and buffers
};

/// Reads a snapshot that was verified, whatever the number of ranks that wrote it.
///
/// Tensors are the files themselves, mapped into memory, where they lie in one piece: copy from
/// them, within checked(), never write to them. They may outlive the reader, and the snapshot being
/// pruned. Those of which ranks wrote parts are copied together.
///
///     SnapshotReader reader(newest_snapshot("runs/7", world));
///     reader.checked([&] {
///       restore_tensors(nn::named_state(*model), reader.model(), reader.path().string());
///     });
class SnapshotReader {
 public:
  /// Takes the names of the files; an empty choice is an InvalidArgument, a part that is missing a
  /// DataError.
  explicit SnapshotReader(const SnapshotChoice& choice);

  const std::filesystem::path& path() const { return path_; }
  std::int64_t step() const { return step_; }

  /// Returns the text of state.json.
  std::string state() const;

  /// Returns the tensors of a group, such as `model`, from all its files; none if there is none of
  /// the group. A tensor that is there twice or not all, and one of another shape than the whole of
  /// a range, are a DataError.
  nn::NamedTensors group(const std::string& name, const WantedTensors& wanted = {}) const;

  nn::NamedTensors model(const WantedTensors& wanted = {}) const { return group("model", wanted); }
  nn::NamedTensors model_ema(const WantedTensors& wanted = {}) const {
    return group("model-ema", wanted);
  }

  /// Returns the state of the optimizer. A snapshot without one is a DataError.
  OptimizerState optimizer(const WantedTensors& wanted = {}) const;

  /// Returns what one rank alone knew; nothing if the world was smaller.
  nn::NamedTensors rank(int rank) const;

  /// Counts the ranks that wrote a file of their own.
  int ranks() const;

  /// Lets `restore` copy from the tensors, then lets go of the files. If another program changed
  /// one of them meanwhile, that is a DataError, whatever `restore` made of it.
  void checked(const std::function<void()>& restore) const;

 private:
  TensorGroup open(const std::string& group) const;
  void require_unchanged() const;

  std::filesystem::path path_;
  std::int64_t step_;
  SnapshotGroups groups_;
  mutable std::vector<std::shared_ptr<const TensorFile>> opened_ = {};  ///< and not yet checked
};

/// Finds the newest usable snapshot of a run, the same on all ranks: rank 0 reads and verifies,
/// once for all. A collective; what rank 0 cannot read is an error on every rank.
SnapshotChoice newest_snapshot(const std::filesystem::path& run, const ProcessGroup& world);

/// Verifies one snapshot, the same on all ranks; a broken one is a DataError on every rank. A
/// collective.
SnapshotChoice verified_snapshot(const std::filesystem::path& snapshot, const ProcessGroup& world);

}  // namespace lockstep
