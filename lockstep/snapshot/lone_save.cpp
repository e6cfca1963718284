#include "lockstep/snapshot/lone_save.h"

#include <cerrno>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/formats/open_directory.h"
#include "lockstep/snapshot/host_copy.h"
#include "lockstep/snapshot/snapshot_names.h"

namespace lockstep {
namespace {

// Of ranks that come at the same moment the first one makes the folder.
std::optional<PendingSnapshot> begin_first(const SnapshotFolder& folder, std::int64_t step) {
  if (is_there_now(folder.path() / snapshot_name(step))) return std::nullopt;
  try {
    return PendingSnapshot::begin(folder, rescue_name(step));
  } catch (const std::system_error& error) {
    if (error.code().value() != EEXIST) throw;
    return std::nullopt;
  }
}

std::vector<WrittenFile> write_part(PendingSnapshot& pending, const SnapshotPart& part) {
  std::vector<nn::NamedTensors> tensors;
  for (const auto& [name, content] : part.files) tensors.push_back(content.tensors);
  HostCopy copy;
  copy.take(tensors);
  const auto lists = copy.row_major();
  std::vector<WrittenFile> written;
  for (auto list = lists.begin(); const auto& [name, content] : part.files) {
    std::map<std::string, std::string> metadata = content.metadata;
    metadata.emplace("format", "pt");
    written.push_back(written_file(pending.write_tensors(name, *list, metadata), *list));
    ++list;
  }
  written.push_back({.file = pending.write(kStateFile, part.state)});
  return written;
}

}  // namespace

bool save_alone(
    const std::filesystem::path& run, int keep, std::int64_t step, const SnapshotPart& part) {
  const SnapshotFolder folder(run);
  auto pending = begin_first(folder, step);
  if (!pending) return false;
  commit_files(*pending, write_part(*pending, part));
  if (part.best) folder.set_best(step);
  folder.prune(keep, step);
  return true;
}

}  // namespace lockstep
