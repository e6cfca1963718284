#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/image_folder.h"

namespace lockstep::data {

/// The files that a scan found, in the order of the classes.
struct ImageFolderList {
  /// A file as it was found, so that a later change is seen.
  struct File {
    std::uint64_t path_end;
    std::int64_t size;      ///< bytes
    std::int64_t modified;  ///< nanoseconds since 1970
  };
  static_assert(sizeof(File) == 24);

  std::filesystem::path directory;
  std::vector<std::string> class_names;
  std::vector<std::int64_t> class_ends;  ///< the index behind the last file of each class
  std::string paths;                     ///< below the directory, one behind another
  std::vector<File> files;
  OtherFiles others;

  /// Returns the path of a file below the directory.
  std::string_view path(std::size_t index) const {
    const std::uint64_t begin = index == 0 ? 0 : files[index - 1].path_end;
    return std::string_view(paths).substr(begin, files[index].path_end - begin);
  }
};

/// Scans a folder by ImageFolder's rules; of its classes only those that are named, unless none is.
ImageFolderList scan_image_folder(
    const std::filesystem::path& directory, const std::vector<std::string>& classes = {});

}  // namespace lockstep::data
