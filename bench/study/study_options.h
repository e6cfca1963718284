#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::bench {

/// The data of a grid that names none: images that fit the model.
inline constexpr const char* kUsualWaysData = "mock";

/// The grid of a user's `lockstep bench ways`, and the results of its trials before the first
/// sample.
struct WaysRequest {
  std::string model = "mnist-small";
  std::string plugin = {};           ///< library with the model; empty: one of ours
  std::vector<int> batches = {128};  ///< images a step, on all places together
  std::vector<int> places = {};      ///< empty: 1, 2 and 4, as far as there are cores
  std::vector<std::string> ways = {"serial", "dp", "ddp", "pp"};
  std::vector<std::string> precisions = {"32"};
  std::vector<std::string> schedules = {};          ///< empty: what `lockstep train` takes
  std::vector<std::string> train_flags = {};        ///< more words for each `lockstep train`
  std::int64_t images = 0;                          ///< of a run, about; 0: not found out yet
  std::map<std::string, std::string> refused = {};  ///< cells that cannot be trained, and why

  /// Returns what was asked for as the flags that ask for it, of another request another text.
  std::string text() const;
};

/// Writes a request as a part of bench.json, or reads it; throws what nlohmann::json throws.
nlohmann::ordered_json to_json(const WaysRequest& request);
WaysRequest ways_of(const nlohmann::json& object);

/// The part of a study that is measured, and the hardware for it.
struct StudyOptions {
  bool full = false;  ///< the study's whole grid; else what takes minutes
  int cores = 1;      ///< that may be used
  /// NVIDIA's GPUs that may be used; empty: not known, as in what an older version began.
  std::optional<int> gpus = {};
  /// Data sets in place of those that studies take by themselves, as `lockstep train --data` takes
  /// them: NAME or NAME:DIR. Each study looks for a name that it knows.
  std::vector<std::string> data = {};
  /// What trainings compute on, as `lockstep train --device` takes it; empty: what that chooses.
  /// Of a request: several, separated by commas.
  std::string device = {};
  /// Hosts to start ranks on; empty: hosts in network namespaces of this machine.
  std::vector<std::string> nodes = {};
  int rounds = 0;  ///< samples of every cell; 0: as many as the study says
  /// Times the work of a quick sample that each has, with a budget that allows more.
  int work = 1;
  /// File of weights that a study's net begins with, for studies that take one; empty: fresh ones.
  std::string pretrained = {};
  /// Without such a file the bench trains initial weights itself; a bench that an older version
  /// began continues with random ones.
  bool pretrains = true;
  WaysRequest ways = {};  ///< the grid of the study whose grid is the user's

  /// Returns the set of one of these names; `otherwise` if none was asked for.
  std::string data_of(const std::vector<std::string>& names, const std::string& otherwise) const;

  /// Returns the names of so many hosts, or of all if there are fewer, separated by commas.
  std::string first_nodes(int count) const;

  /// Returns true unless a device was named that has cores of its own.
  bool on_cores() const { return device.empty() || device == "auto" || device == "cpu"; }

  /// Returns true if this many places have to share cores.
  bool oversubscribed(int places) const { return on_cores() && places > cores; }

  /// Returns the rounds that were asked for, or else the study's.
  int rounds_or(int of_study) const { return rounds > 0 ? rounds : of_study; }
};

/// Returns the name of a set: `mnist` of `mnist:DIR`.
std::string data_name(const std::string& data);

}  // namespace lockstep::bench
