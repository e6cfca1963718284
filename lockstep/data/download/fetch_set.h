#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/formats/fetch/download.h"

namespace lockstep::data {

/// A data set that may be fetched, as its authors published it.
struct KnownSet {
  std::string name;
  std::vector<Download> files;
  std::string archive_folder;  ///< the one file is an archive of this folder; empty: it is none
};

/// Lists the sets that can be fetched.
const std::vector<KnownSet>& known_sets();

/// Finds one by name. An unknown name, or a set that its owners give to nobody without an account,
/// is an InvalidArgument that says what to do instead.
const KnownSet& known_set(const std::string& name);

/// A file of a set that was fetched.
struct FetchedFile {
  std::string name;
  std::uint64_t bytes = 0;
  bool downloaded = false;  ///< else it, or what was unpacked from it, was there and right
};

/// Brings a set's files into a folder, each verified; an archive is unpacked there and then removed
/// if it was not there before.
///
/// The folder of an archive has a list of its files, SHA256SUMS, by which a later call knows that
/// it is whole. With a mirror, an https address of a folder, only that is asked. Errors are
/// download()'s and extract_archive()'s; a folder of that name that is not whole is a DataError.
std::vector<FetchedFile> fetch_set(const KnownSet& set, const std::filesystem::path& directory,
    const std::string& mirror, const DownloadOptions& options);

}  // namespace lockstep::data
