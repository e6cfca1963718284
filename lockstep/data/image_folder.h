#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::data {

/// The files of a folder that are not images by their names.
struct OtherFiles {
  std::int64_t count = 0;
  std::vector<std::string> examples;            ///< the first few, for messages
  std::map<std::string, std::int64_t> endings;  ///< of those that are not hidden: `.webp`, or none

  OtherFiles& operator+=(const OtherFiles& more);

  /// Counts the files by their ending, the most frequent first: `20 .webp, 9 .bmp`; empty where
  /// all are hidden.
  std::string endings_text() const;
};

struct ImageFolderList;

/// The JPEG and PNG files of a folder of class folders.
///
/// Classes are the folders of `directory`, their numbers the order of their names by bytes; a class
/// has the files below its folder, in the order in which torchvision's ImageFolder walks. A file
/// counts by its extension (jpg, jpeg, png, in any case); others, and hidden files and folders, are
/// counted in other_files(). Fewer than two classes, a class without images, a link that leaves the
/// folder and a link to a folder are a DataError; a folder that cannot be read is a
/// std::system_error.
///
/// A small value: copies share the list, which takes 24 bytes a file and its path. Many threads may
/// read at once.
///
///     ImageFolder flowers("flowers");
///     Image image = decode_image(flowers.open(0), flowers.name(0));
class ImageFolder {
 public:
  /// The most bytes of one image file.
  static constexpr std::int64_t kMaximumFileBytes = std::int64_t{256} << 20;

  /// Scans the folder. With names of class folders, the classes are these alone and have their
  /// order; a name that is not there or twice, and a single one, is an InvalidArgument.
  explicit ImageFolder(
      const std::filesystem::path& directory, const std::vector<std::string>& classes = {});

  std::int64_t size() const;
  std::int64_t classes() const;
  const std::filesystem::path& directory() const;
  const OtherFiles& other_files() const;

  /// Returns the names of the classes as they are on disk, which need not be UTF-8.
  const std::vector<std::string>& class_names() const;

  /// Returns the class of a file; an index outside [0, size()) is an InvalidArgument, here and
  /// below.
  std::int64_t label(std::int64_t index) const;

  /// Returns the classes of all files.
  std::vector<std::int64_t> labels() const;

  /// Returns the path of a file.
  std::filesystem::path path(std::int64_t index) const;

  /// Returns the path for messages: what is no printable UTF-8 is escaped.
  std::string name(std::int64_t index) const;

  /// Reads a file.
  ///
  /// A file that is gone, was changed since the scan, is not a regular file or too large is a
  /// DataError; what the system refuses for another reason (permission) is a std::system_error.
  std::vector<std::uint8_t> open(std::int64_t index) const;

  /// Does the same into bytes whose memory is used again.
  void open(std::int64_t index, std::vector<std::uint8_t>& bytes) const;

 private:
  std::size_t checked(std::int64_t index) const;

  std::shared_ptr<const ImageFolderList> list_;
};

/// The parts of a data set that lies in folders.
struct ImageFolders {
  ImageFolder train;
  std::optional<ImageFolder> validation;
  std::optional<ImageFolder> test;
};

/// Opens DIR/train with DIR/val (or valid, validation) and DIR/test if they are there, otherwise
/// DIR itself as the only part, to be split by seed.
///
/// The parts must have the same classes, and DIR must not hold class folders beside `train`: both
/// are DataErrors. With names, each part has these classes alone, as ImageFolder.
ImageFolders open_image_folders(
    const std::filesystem::path& directory, const std::vector<std::string>& classes = {});

}  // namespace lockstep::data
