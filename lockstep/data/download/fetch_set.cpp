#include "lockstep/data/download/fetch_set.h"

#include "lockstep/core/error.h"
#include "lockstep/formats/atomic_directory.h"
#include "lockstep/formats/fetch/archive.h"
#include "lockstep/formats/fetch/checksum_list.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

Download from_mirror(Download file, const std::string& mirror) {
  if (mirror.empty()) return file;
  file.addresses = {mirror + (mirror.back() == '/' ? "" : "/") + file.name};
  return file;
}

bool is_unpacked(const fs::path& folder) {
  if (!fs::exists(fs::symlink_status(folder))) return false;
  const auto fault = checksum_list_fault(folder);
  if (!fault) return true;
  throw DataError(concat(
      folder.string(), ": is there already, but ", *fault, "; move it away and fetch again"));
}

void unpack(const fs::path& archive, const fs::path& folder) {
  AtomicDirectory fresh(folder);
  extract_archive(archive, fresh.path(), {}, folder.filename());
  write_checksum_list(fresh.path());
  fresh.commit();
}

FetchedFile fetch_archive(
    const Download& file, const fs::path& directory, const fs::path& folder,
    const DownloadOptions& options) {
  if (is_unpacked(folder)) return {file.name, file.bytes, false};
  const bool downloaded = download(file, directory, options);
  unpack(directory / file.name, folder);
  if (downloaded) fs::remove(directory / file.name);
  return {file.name, file.bytes, downloaded};
}

}  // namespace

std::vector<FetchedFile> fetch_set(
    const KnownSet& set, const fs::path& directory, const std::string& mirror,
    const DownloadOptions& options) {
  std::vector<FetchedFile> fetched;
  for (const Download& file : set.files) {
    const Download wanted = from_mirror(file, mirror);
    if (set.archive_folder.empty()) {
      fetched.push_back({file.name, file.bytes, download(wanted, directory, options)});
    } else {
      fetched.push_back(fetch_archive(wanted, directory, directory / set.archive_folder, options));
    }
  }
  return fetched;
}

}  // namespace lockstep::data
