#include "lockstep/data/image_folder.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <initializer_list>
#include <sys/stat.h>
#include <system_error>

#include "lockstep/core/error.h"
#include "lockstep/core/file_descriptor.h"
#include "lockstep/core/text.h"
#include "lockstep/data/image_folder_scan.h"
#include "lockstep/formats/input_file.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;
using File = ImageFolderList::File;

template <typename... Parts>
[[noreturn]] void fail(const std::string& name, const Parts&... reason) {
  throw DataError(concat(name, ": ", reason...));
}

FileDescriptor open_without_links(const fs::path& path, const std::string& name) {
  // Without O_NONBLOCK the opening of a FIFO waits for a writer, perhaps for ever.
  FileDescriptor file(
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW));
  if (file) return file;
  const int code = errno;
  if (code == ENOENT || code == ENOTDIR || code == ELOOP || code == ENXIO) {
    fail(name, "is gone since the folder was scanned: ", std::generic_category().message(code),
        "; do not change a data set while it is read");
  }
  throw_errno("open", name);
}

void check_unchanged(int descriptor, const File& found, const std::string& name) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) throw_errno("fstat", name);
  const std::int64_t modified =
      std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
  if (S_ISREG(status.st_mode) && status.st_size == found.size && modified == found.modified) return;
  fail(name, "was changed since the folder was scanned: ", found.size, " bytes then, ",
      status.st_size, " now; do not change a data set while it is read");
}

constexpr const char* kTrain = "train";
constexpr std::array kValidation{"val", "valid", "validation"};
constexpr const char* kTest = "test";

bool is_part_name(const std::string& name) {
  return name == kTrain || name == kTest ||
         std::find(kValidation.begin(), kValidation.end(), name) != kValidation.end();
}

/// Refuses folders beside `train` that look like classes: which of the two layouts is it?
void check_only_parts(const fs::path& directory) {
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().native();
    if (name.starts_with('.') || is_part_name(name) || !entry.is_directory()) continue;
    throw DataError(
        concat(printable_path(directory.native()), ": the folder ", printable_path(name),
            " is next to the folder train; a set has either parts (train, val, test) or classes"));
  }
}

using Names = std::vector<std::string>;

std::optional<ImageFolder> open_part(
    const fs::path& directory, const char* name, const ImageFolder& train, const Names& chosen) {
  const fs::path path = directory / name;
  if (!fs::is_directory(path)) return std::nullopt;
  ImageFolder part(path, chosen);
  const auto& expected = train.class_names();
  const auto& found = part.class_names();
  if (found == expected) return part;
  const auto [missing, extra] =
      std::mismatch(expected.begin(), expected.end(), found.begin(), found.end());
  const bool is_extra = missing == expected.end() || (extra != found.end() && *extra < *missing);
  throw DataError(concat(printable_path(path.native()), ": the classes must be those of ", kTrain,
      ": ", printable_path(is_extra ? *extra : *missing),
      is_extra ? " is not there" : " is missing"));
}

std::optional<ImageFolder> open_validation(
    const fs::path& directory, const ImageFolder& train, const Names& chosen) {
  std::optional<ImageFolder> validation;
  for (const char* name : kValidation) {
    auto part = open_part(directory, name, train, chosen);
    if (part && validation) {
      throw DataError(concat(printable_path(directory.native()), ": two folders to validate with: ",
          validation->directory().filename().native(), " and ", name));
    }
    if (part) validation = std::move(part);
  }
  return validation;
}

}  // namespace

OtherFiles& OtherFiles::operator+=(const OtherFiles& more) {
  count += more.count;
  examples.insert(examples.end(), more.examples.begin(), more.examples.end());
  for (const auto& [ending, files] : more.endings) endings[ending] += files;
  return *this;
}

std::string OtherFiles::endings_text() const {
  constexpr std::size_t kMostNamed = 5;
  std::vector<std::pair<std::int64_t, std::string>> most;
  for (const auto& [ending, files] : endings) most.emplace_back(-files, ending);
  std::sort(most.begin(), most.end());
  std::vector<std::string> texts;
  std::int64_t left = 0;
  for (const auto& [files, ending] : most) {
    if (texts.size() == kMostNamed) {
      left -= files;
    } else {
      texts.push_back(
          concat(-files, ' ', ending.empty() ? "without an ending" : printable_path(ending)));
    }
  }
  if (left > 0) texts.push_back(concat(left, " others"));
  return joined(texts, ", ");
}

ImageFolder::ImageFolder(const fs::path& directory, const std::vector<std::string>& classes)
    : list_(std::make_shared<const ImageFolderList>(scan_image_folder(directory, classes))) {}

std::int64_t ImageFolder::size() const { return static_cast<std::int64_t>(list_->files.size()); }

std::int64_t ImageFolder::classes() const {
  return static_cast<std::int64_t>(list_->class_names.size());
}

const fs::path& ImageFolder::directory() const { return list_->directory; }

const OtherFiles& ImageFolder::other_files() const { return list_->others; }

const std::vector<std::string>& ImageFolder::class_names() const { return list_->class_names; }

std::size_t ImageFolder::checked(std::int64_t index) const {
  check(0 <= index && index < size(), "ImageFolder: no such file: ", index, " of ", size());
  return static_cast<std::size_t>(index);
}

std::int64_t ImageFolder::label(std::int64_t index) const {
  checked(index);
  const auto& ends = list_->class_ends;
  return std::upper_bound(ends.begin(), ends.end(), index) - ends.begin();
}

std::vector<std::int64_t> ImageFolder::labels() const {
  std::vector<std::int64_t> labels;
  labels.reserve(list_->files.size());
  for (std::size_t number = 0; number < list_->class_ends.size(); ++number) {
    labels.resize(
        static_cast<std::size_t>(list_->class_ends[number]), static_cast<std::int64_t>(number));
  }
  return labels;
}

fs::path ImageFolder::path(std::int64_t index) const {
  return list_->directory / list_->path(checked(index));
}

std::string ImageFolder::name(std::int64_t index) const {
  return printable_path(path(index).native());
}

std::vector<std::uint8_t> ImageFolder::open(std::int64_t index) const {
  std::vector<std::uint8_t> bytes;
  open(index, bytes);
  return bytes;
}

void ImageFolder::open(std::int64_t index, std::vector<std::uint8_t>& bytes) const {
  const std::string name = this->name(index);
  const File& found = list_->files[static_cast<std::size_t>(index)];
  if (found.size > kMaximumFileBytes) {
    fail(name, "the file has ", found.size, " bytes, more than the limit of ", kMaximumFileBytes);
  }
  InputFile file(open_without_links(path(index), name), name);
  check_unchanged(file.descriptor(), found, name);
  bytes.resize(static_cast<std::size_t>(found.size));
  const std::size_t filled = file.read(bytes);
  if (filled < bytes.size()) fail(name, "offset ", filled, ": the file ends while it is read");
  check_unchanged(file.descriptor(), found, name);
}

ImageFolders open_image_folders(
    const fs::path& directory, const std::vector<std::string>& classes) {
  if (!fs::is_directory(directory / kTrain)) {
    return {
        .train = ImageFolder(directory, classes), .validation = std::nullopt, .test = std::nullopt};
  }
  check_only_parts(directory);
  ImageFolder train(directory / kTrain, classes);
  auto validation = open_validation(directory, train, classes);
  auto test = open_part(directory, kTest, train, classes);
  return {.train = std::move(train), .validation = std::move(validation), .test = std::move(test)};
}

}  // namespace lockstep::data
