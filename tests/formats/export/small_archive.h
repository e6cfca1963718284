#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/formats/export/exported_program.h"

namespace lockstep::testing {

/// An archive of a program `model` that adds its parameter `w` (2 x 3 floats) to its input `x`, for
/// tests to change: JSON by JSON pointers, all else as text.
struct SmallArchive {
  SmallArchive();

  /// Returns the argument `other` of the only node.
  nlohmann::json& argument();
  /// Returns what the list of weights says of `w`.
  nlohmann::json& weight();
  /// Adds a tensor to the weights: as `w` is, but of another name.
  nlohmann::json& add_weight(const std::string& name);

  std::vector<std::uint8_t> bytes() const;

  nlohmann::json program;
  nlohmann::json weights;
  nlohmann::json constants;
  std::map<std::string, std::string>
      parts;  ///< below the archive's folder; come before the JSON above
};

/// Returns a size of the file, a number.
nlohmann::json size_of(std::int64_t number);

/// Returns the path of an archive that data/make_archives.py made.
std::filesystem::path python_archive(const std::string& name);

/// Finds a node by its name; without it throws.
const ExportedNode& node_of(const ExportedGraph& graph, const std::string& name);

}  // namespace lockstep::testing
