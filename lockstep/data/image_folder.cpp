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
#include "lockstep/formats/input_file.h"
#include "lockstep/liveness/own_slot.h"

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

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostExamples = 3;
constexpr std::size_t kMostClasses = 20;  // in a message

template <typename... Parts>
[[noreturn]] void refuse(const fs::path& path, const Parts&... reason) {
  throw DataError(concat(printable_path(path.native()), ": ", reason...));
}

// In nanoseconds since 1970.
std::int64_t modified_at(const struct stat& status) {
  return std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
}

bool is_hidden(const std::string& name) { return name.starts_with('.'); }

// With its dot, in lower case; empty for none.
std::string ending_of(const std::string& name) {
  const auto dot = name.rfind('.');
  if (dot == std::string::npos) return "";
  std::string ending = name.substr(dot);
  for (char& c : ending) {
    if ('A' <= c && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return ending;
}

bool is_image_name(const std::string& name) {
  const std::string ending = ending_of(name);
  return ending == ".jpg" || ending == ".jpeg" || ending == ".png";
}

/// The names in one folder by what they are, sorted.
struct Contents {
  std::vector<std::string> folders;
  std::vector<std::string> images;
  std::vector<std::string> others;
};

class Scanner {
 public:
  Scanner(const fs::path& directory, const std::vector<std::string>& classes) : chosen_(classes) {
    std::error_code error;
    list_.directory = fs::canonical(directory, error);
    if (error) refuse(directory, "cannot be opened: ", error.message(), "; check the path");
    if (!fs::is_directory(list_.directory))
      refuse(directory, "a folder of class folders is needed");
  }

  ImageFolderList scan() {
    const Contents root = contents("");
    for (const auto& name : root.images) add_other(name);
    for (const auto& name : root.others) add_other(name);
    list_.class_names = chosen_.empty() ? root.folders : chosen_among(root.folders);
    check_class_count();
    for (const auto& name : list_.class_names) {
      const std::size_t before = list_.files.size();
      const std::int64_t others_before = list_.others.count;
      scan_class(name);
      if (list_.files.size() == before) refuse_empty_class(name, others_before);
      list_.class_ends.push_back(static_cast<std::int64_t>(list_.files.size()));
    }
    list_.paths.shrink_to_fit();
    list_.files.shrink_to_fit();
    return std::move(list_);
  }

 private:
  static fs::directory_iterator entries(const fs::path& folder) {
    std::error_code error;
    fs::directory_iterator found(folder, error);
    if (error) throw std::system_error(error, "cannot list " + printable_path(folder.native()));
    return found;
  }

  Contents contents(const std::string& below) const {
    Contents found;
    std::error_code ignored;  // a link to nothing is refused where its target is looked for
    for (const auto& entry : entries(list_.directory / below)) {
      sign_of_life();
      const std::string name = entry.path().filename().native();
      const fs::file_type type = entry.symlink_status().type();
      if (is_hidden(name)) {
        found.others.push_back(name);
      } else if (type == fs::file_type::directory) {
        found.folders.push_back(name);
      } else if (type == fs::file_type::symlink && entry.is_directory(ignored)) {
        refuse(entry.path(), "a link to a folder is not followed; put the folder itself there");
      } else {
        (is_image_name(name) ? found.images : found.others).push_back(name);
      }
    }
    for (auto* names : {&found.folders, &found.images, &found.others}) {
      std::sort(names->begin(), names->end());
    }
    return found;
  }

  // In their order, which numbers them.
  std::vector<std::string> chosen_among(const std::vector<std::string>& folders) const {
    const std::string where = printable_path(list_.directory.native());
    check(chosen_.size() > 1, where, ": at least two of its classes are needed, not only ",
        printable_path(chosen_.front()));
    for (auto name = chosen_.begin(); name != chosen_.end(); ++name) {
      check(std::binary_search(folders.begin(), folders.end(), *name), where,
          ": there is no class folder ", printable_path(*name), did_you_mean(*name, folders), " (",
          some_of(folders), ")");
      check(std::find(chosen_.begin(), name, *name) == name, where, ": the class ",
          printable_path(*name), " is named twice");
    }
    return chosen_;
  }

  static std::string some_of(const std::vector<std::string>& folders) {
    const std::size_t shown = std::min(folders.size(), kMostClasses);
    std::vector<std::string> names;
    for (std::size_t i = 0; i < shown; ++i) names.push_back(printable_path(folders[i]));
    const std::size_t others = folders.size() - shown;
    return concat("there are ", joined(names), others == 0 ? "" : concat(" and ", others, " more"));
  }

  void check_class_count() const {
    const auto count = list_.class_names.size();
    if (count == 0) refuse(list_.directory, "no class folder; each class is a folder of images");
    if (count == 1) {
      refuse(list_.directory, "only one class folder, ", printable_path(list_.class_names[0]),
          "; at least two are needed");
    }
  }

  [[noreturn]] void refuse_empty_class(const std::string& name, std::int64_t others_before) const {
    refuse(list_.directory / name, "the class has no JPEG or PNG file, but ",
        list_.others.count - others_before, " others; remove the folder or convert them");
  }

  void scan_class(const std::string& name) {
    std::vector<std::string> folders{name};
    std::vector<std::pair<std::string, Contents>> found;
    while (!folders.empty()) {
      const std::string folder = std::move(folders.back());
      folders.pop_back();
      found.emplace_back(folder, contents(folder));
      for (const auto& inner : found.back().second.folders) folders.push_back(folder + '/' + inner);
    }
    // As os.walk's folders are sorted in torchvision: by the whole path, not level by level.
    std::sort(
        found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [folder, names] : found) {
      for (const auto& image : names.images) add_image(folder + '/' + image);
      for (const auto& other : names.others) add_other(folder + '/' + other);
    }
  }

  void add_other(const std::string& path) {
    if (list_.others.examples.size() < kMostExamples)
      list_.others.examples.push_back(printable_path(path));
    ++list_.others.count;
    const std::string name = path.substr(path.rfind('/') + 1);
    if (!is_hidden(name)) ++list_.others.endings[ending_of(name)];
  }

  void add_image(std::string path) {
    struct stat status = status_of(path);
    if (S_ISLNK(status.st_mode)) {
      path = target_of(path);
      status = status_of(path);
    }
    if (!S_ISREG(status.st_mode)) refuse(list_.directory / path, "a regular file is needed");
    list_.paths += path;
    list_.files.push_back(
        {.path_end = list_.paths.size(), .size = status.st_size, .modified = modified_at(status)});
  }

  struct stat status_of(const std::string& path) const {
    const fs::path whole = list_.directory / path;
    struct stat status {};
    if (::lstat(whole.c_str(), &status) != 0) throw_errno("lstat", printable_path(whole.native()));
    return status;
  }

  /// Follows a link; what is kept is the path of its target, so that it can be opened without
  /// following any.
  std::string target_of(const std::string& path) const {
    const fs::path link = list_.directory / path;
    std::error_code error;
    const fs::path target = fs::canonical(link, error);
    if (error) refuse(link, "a link that leads to no file: ", error.message(), "; remove it");
    const std::string root = list_.directory.native() + '/';
    if (!target.native().starts_with(root)) {
      refuse(link, "a link that leaves the folder, to ", printable_path(target.native()),
          "; copy the file here");
    }
    return target.native().substr(root.size());
  }

  const std::vector<std::string>& chosen_;
  ImageFolderList list_;
};

using File = ImageFolderList::File;

FileDescriptor open_without_links(const fs::path& path) {
  // Without O_NONBLOCK the opening of a FIFO waits for a writer, perhaps for ever.
  FileDescriptor file(
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW));
  if (file) return file;
  const int code = errno;
  if (code == ENOENT || code == ENOTDIR || code == ELOOP || code == ENXIO) {
    refuse(path, "is gone since the folder was scanned: ", std::generic_category().message(code),
        "; do not change a data set while it is read");
  }
  throw_errno("open", printable_path(path.native()));
}

void check_unchanged(int descriptor, const File& found, const fs::path& path) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) throw_errno("fstat", printable_path(path.native()));
  if (S_ISREG(status.st_mode) && status.st_size == found.size &&
      modified_at(status) == found.modified)
    return;
  refuse(path, "was changed since the folder was scanned: ", found.size, " bytes then, ",
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
    refuse(directory, "the folder ", printable_path(name),
        " is next to the folder train; a set has either parts (train, val, test) or classes");
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
  refuse(path, "the classes must be those of ", kTrain, ": ",
      printable_path(is_extra ? *extra : *missing), is_extra ? " is not there" : " is missing");
}

std::optional<ImageFolder> open_validation(
    const fs::path& directory, const ImageFolder& train, const Names& chosen) {
  std::optional<ImageFolder> validation;
  for (const char* name : kValidation) {
    auto part = open_part(directory, name, train, chosen);
    if (part && validation) {
      refuse(directory,
          "two folders to validate with: ", validation->directory().filename().native(), " and ",
          name);
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
    : list_(std::make_shared<const ImageFolderList>(Scanner(directory, classes).scan())) {}

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
  const fs::path path = this->path(index);
  const File& found = list_->files[static_cast<std::size_t>(index)];
  if (found.size > kMaximumFileBytes) {
    refuse(path, "the file has ", found.size, " bytes, more than the limit of ", kMaximumFileBytes);
  }
  InputFile file(open_without_links(path), printable_path(path.native()));
  check_unchanged(file.descriptor(), found, path);
  bytes.resize(static_cast<std::size_t>(found.size));
  const std::size_t filled = file.read(bytes);
  if (filled < bytes.size()) refuse(path, "offset ", filled, ": the file ends while it is read");
  check_unchanged(file.descriptor(), found, path);
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
