#include "lockstep/formats/fetch/archive.h"

#include <system_error>

#include "lockstep/core/error.h"
#include "lockstep/formats/fetch/archive_path.h"
#include "lockstep/formats/fetch/archive_reader.h"
#include "lockstep/formats/output_file.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// The unpacking of one archive.
class Extraction {
 public:
  Extraction(
      const fs::path& archive, fs::path folder, const ArchiveLimits& limits, const std::string& top)
      : reader_(archive, limits.ratio),
        name_(archive.string()),
        folder_(std::move(folder)),
        limits_(limits),
        top_(top) {}

  Unpacked run() {
    while (auto entry = reader_.next()) {
      entry_ = std::move(*entry);
      ++entries_;
      if (entries_ > limits_.entries) refuse(concat("there are more than ", limits_.entries));
      if (entry_.refusal != nullptr) refuse(entry_.refusal);
      const fs::path path = safe_path();
      if (entry_.is_folder) {
        make_folder(path);
      } else {
        write_file(path);
      }
    }
    return unpacked_;
  }

 private:
  fs::path safe_path() const {
    try {
      return below_top(path_in_archive(entry_.name, limits_.path_bytes, limits_.depth));
    } catch (const DataError& error) {
      refuse(error.what());
    }
  }

  fs::path below_top(const fs::path& path) const {
    if (top_.empty()) return path;
    if (path.empty() || *path.begin() != top_) {
      throw DataError(concat("it lies outside of the folder ", top_));
    }
    return path.lexically_relative(top_) == "." ? fs::path() : path.lexically_relative(top_);
  }

  void make_folder(const fs::path& path) {
    std::error_code error;
    unpacked_.folders += fs::create_directories(folder_ / path, error) ? 1 : 0;
    // create_directories() is content with a file of that name.
    if (error == std::errc::not_a_directory || (!error && !fs::is_directory(folder_ / path))) {
      refuse("a file has the name of its folder");
    }
    if (error) throw std::system_error(error, concat("cannot make the folder ", folder_ / path));
  }

  void write_file(const fs::path& path) {
    if (path.empty()) refuse("a file has the name of its folder");
    make_folder(path.parent_path());
    if (fs::exists(fs::symlink_status(folder_ / path))) refuse("its name is there twice");
    OutputFile file(folder_ / path);
    for (auto bytes = reader_.read(); !bytes.empty(); bytes = reader_.read()) {
      unpacked_.bytes += bytes.size();
      if (unpacked_.bytes > limits_.bytes) {
        refuse(concat("the files hold more than ", limits_.bytes, " bytes"));
      }
      file.write(bytes);
    }
    file.close();
    if (entry_.executable) fs::permissions(folder_ / path, fs::perms(0755));
    ++unpacked_.files;
  }

  [[noreturn]] void refuse(const std::string& reason) const {
    throw DataError(
        concat(name_, ": entry ", entries_, " (", shown_name(entry_.name), "): ", reason));
  }

  ArchiveReader reader_;
  std::string name_;
  fs::path folder_;
  const ArchiveLimits& limits_;
  const std::string& top_;
  ArchiveEntry entry_;
  std::uint64_t entries_ = 0;
  Unpacked unpacked_;
};

}  // namespace

Unpacked extract_archive(const fs::path& archive, const fs::path& folder,
    const ArchiveLimits& limits, const std::string& top) {
  check(fs::is_directory(folder) && fs::is_empty(folder),
      "archive: the folder to unpack into must be empty: ", folder.string());
  return Extraction(archive, folder, limits, top).run();
}

}  // namespace lockstep
