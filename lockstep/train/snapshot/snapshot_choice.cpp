#include "lockstep/train/snapshot/snapshot_choice.h"

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>

#include "lockstep/core/error.h"
#include "lockstep/formats/snapshot/snapshot_check.h"
#include "lockstep/formats/strict_json.h"
#include "lockstep/train/snapshot/group_values.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr JsonLimits kChoiceLimits{.bytes = std::size_t{64} << 20, .depth = 8};

json json_of(const SnapshotChoice& choice) {
  json refused = json::array();
  for (const auto& [name, reason] : choice.refused) refused.push_back({name, reason});
  json message{{"path", choice.path.string()}, {"refused", refused}};
  if (!choice.path.empty()) message["manifest"] = to_json(choice.manifest);
  return message;
}

SnapshotChoice choice_of(const json& message) {
  SnapshotChoice choice;
  choice.path = message.at("path").get<std::string>();
  for (const json& pair : message.at("refused"))
    choice.refused.push_back({pair.at(0).get<std::string>(), pair.at(1).get<std::string>()});
  if (!choice.path.empty()) {
    choice.manifest =
        parse_manifest(message.at("manifest").get<std::string>(), choice.path.string());
  }
  return choice;
}

// The exception that the others throw says the reason behind the text again.
std::string without_reason(const std::system_error& error) {
  std::string text = error.what();
  const std::string reason = ": " + error.code().message();
  if (text.ends_with(reason)) text.resize(text.size() - reason.size());
  return text;
}

// Errors travel as well: a rank that threw alone would leave the others waiting.
SnapshotChoice chosen_by_root(
    const std::function<SnapshotChoice()>& choose, const ProcessGroup& world) {
  json message;
  if (world.rank() == 0) {
    try {
      message = json_of(choose());
    } catch (const std::system_error& error) {
      message = {{"error", without_reason(error)}, {"code", error.code().value()}};
    } catch (const std::exception& error) {
      message = {{"error", error.what()}};
    }
  }
  // Paths are bytes, JSON is UTF-8: what is not comes back changed and is then not found.
  const auto text = message.dump(-1, ' ', false, json::error_handler_t::replace);
  message =
      parse_strict_json(broadcast_text(text, 0, world), "the choice of rank 0", kChoiceLimits);
  if (!message.contains("error")) return choice_of(message);
  const auto reason = message["error"].get<std::string>();
  if (!message.contains("code")) throw DataError(reason);
  throw std::system_error(message["code"].get<int>(), std::generic_category(), reason);
}

}  // namespace

SnapshotChoice newest_snapshot(const std::filesystem::path& run, const ProcessGroup& world) {
  return chosen_by_root([&] { return SnapshotFolder(run).newest(); }, world);
}

SnapshotChoice verified_snapshot(const std::filesystem::path& snapshot, const ProcessGroup& world) {
  const auto verify = [&] {
    return SnapshotChoice{.path = snapshot, .manifest = verify_snapshot(snapshot), .refused = {}};
  };
  return chosen_by_root(verify, world);
}

}  // namespace lockstep
