#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/image_folder.h"
#include "lockstep/data/tensor_table.h"
#include "lockstep/formats/image/image.h"

namespace lockstep::data {

/// A file that cannot be trained with, and why.
struct BadFile {
  std::string name;  ///< for people: what is no printable UTF-8 is escaped
  std::string reason;
};

/// The numbers of a tensor of a part.
struct TensorReport {
  std::string name;
  bool is_target = false;
  std::string type;                 ///< PyTorch's name, as in the files
  std::vector<std::int64_t> sizes;  ///< of one sample
  double least = 0, mean = 0, most = 0;
  std::int64_t nonfinite = 0;  ///< so many are NaN or infinite, and left out of these
};

/// The content of a part of a set: train, val, test.
struct PartReport {
  std::string name;
  std::int64_t images = 0;              ///< those that are good; or samples, or tokens
  std::vector<std::int64_t> per_class;  ///< images of each class; none where there are no classes
  std::vector<TensorReport> tensors = {};  ///< of `tensors`, `tokens` and `text`
};

/// The files of a folder of images.
struct FilesReport {
  std::int64_t jpeg = 0;
  std::int64_t png = 0;
  OtherFiles other = {};          ///< files that are no images by their names
  std::int64_t bad_exif = 0;      ///< images whose orientation cannot be read and counts as upright
  std::int64_t repeated = 0;      ///< images whose bytes are those of another one
  std::int64_t across_parts = 0;  ///< of those, the ones whose twin is in another part
  std::uint64_t bytes = 0;
};

/// The findings of `lockstep data check`.
struct SetReport {
  std::string set;
  std::filesystem::path directory;
  std::vector<PartReport> parts = {};
  std::vector<std::string> class_names = {};  ///< empty where the set's files have none
  std::optional<ImageSize> smallest = {};     ///< least width and least height
  std::optional<ImageSize> largest = {};
  std::optional<FilesReport> files = {};  ///< of `images` alone
  std::vector<std::string> remarks = {};  ///< on what is not read, or not as it lies there
  std::vector<BadFile> bad = {};
};

/// Options of check_set().
struct CheckOptions {
  int workers = 1;
  std::function<void(std::int64_t done, std::int64_t of)> progress = {};  ///< one call at a time
  TensorChoice choice = {};  ///< of a set of tensors, as training is told it
};

/// Reads every file of a set in full, by the readers that training uses, and says what it holds.
///
/// The sets are mnist, fashion-mnist, cifar10, cifar100, images; and tensors, tokens and text, of
/// which `directory` may be several files and folders with commas between them. A bad file is
/// reported and the others are read; an unknown set, or a choice of tensors of a set that has none,
/// is an InvalidArgument, what the system refuses a std::system_error.
SetReport check_set(const std::string& set, const std::filesystem::path& directory,
    const CheckOptions& options = {});

/// Lists the sets that can be checked.
const std::vector<std::string>& checked_set_names();

}  // namespace lockstep::data
