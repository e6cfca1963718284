#include "lockstep/data/image_folder_scan.h"

#include <algorithm>
#include <array>
#include <sys/stat.h>
#include <system_error>

#include "lockstep/core/error.h"
#include "lockstep/core/file_descriptor.h"
#include "lockstep/core/text.h"
#include "lockstep/liveness/own_slot.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostExamples = 3;
constexpr std::size_t kMostClasses = 20;  // in a message

template <typename... Parts>
[[noreturn]] void refuse(const fs::path& path, const Parts&... reason) {
  throw DataError(concat(printable_path(path.native()), ": ", reason...));
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
    list_.files.push_back({.path_end = list_.paths.size(),
        .size = status.st_size,
        .modified = std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec});
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

}  // namespace

ImageFolderList scan_image_folder(
    const fs::path& directory, const std::vector<std::string>& classes) {
  return Scanner(directory, classes).scan();
}

}  // namespace lockstep::data
