#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace lockstep::bench {

/// The data of a grid that names none: images that fit the model.
inline constexpr const char* kUsualWaysData = "mock";

/// The grid that a user asks `lockstep bench ways` for, and what was found out before its first
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

}  // namespace lockstep::bench
