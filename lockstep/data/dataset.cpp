#include "lockstep/data/dataset.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/data/image_folder.h"
#include "lockstep/formats/byte_fields.h"
#include "lockstep/formats/cifar.h"
#include "lockstep/formats/idx.h"

namespace lockstep::data {
namespace {

void check_parts(const InMemoryImages::Parts& parts) {
  const auto& shape = parts.shape;
  check(shape.channels > 0 && shape.height > 0 && shape.width > 0,
      "InMemoryImages: an image must have pixels: ", shape.channels, " x ", shape.height, " x ",
      shape.width);
  check(!parts.labels.empty(), "InMemoryImages: the set must not be empty: ", parts.name);
  const std::size_t expected = parts.labels.size() * static_cast<std::size_t>(shape.elements());
  check(parts.pixels.size() == expected,
      "InMemoryImages: pixels must fit labels and shape: ", parts.pixels.size(), " instead of ",
      expected);
  const int largest = *std::max_element(parts.labels.begin(), parts.labels.end());
  check(largest < parts.classes,
      "InMemoryImages: labels must be less than the number of classes: ", largest, " of ",
      parts.classes);
}

namespace fs = std::filesystem;

/// The layout of a set on disk.
struct Version {
  std::string name;
  std::string title;
  CifarVariant variant;
  std::int64_t classes;
  fs::path inner_folder;  // of its archive
  std::vector<fs::path> train;
  std::vector<fs::path> test;
  std::vector<fs::path> python_files;  // of the version that is not read
};

const Version& version_of(bool hundred) {
  static const Version kTen{.name = "cifar10",
      .title = "CIFAR-10",
      .variant = CifarVariant::kCifar10,
      .classes = 10,
      .inner_folder = "cifar-10-batches-bin",
      .train = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
          "data_batch_5.bin"},
      .test = {"test_batch.bin"},
      .python_files = {"data_batch_1", "cifar-10-batches-py"}};
  static const Version kHundred{.name = "cifar100",
      .title = "CIFAR-100",
      .variant = CifarVariant::kCifar100,
      .classes = 100,
      .inner_folder = "cifar-100-binary",
      .train = {"train.bin"},
      .test = {"test.bin"},
      .python_files = {"train", "cifar-100-python"}};
  return hundred ? kHundred : kTen;
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  // What is there but no file, such as a loop of links, is left to the reader to name.
  return fs::exists(fs::symlink_status(path, ignored));
}

bool has_any(const fs::path& directory, const std::vector<fs::path>& names) {
  return std::ranges::any_of(
      names, [&](const fs::path& name) { return is_there(directory / name); });
}

/// Guesses why a file is missing.
std::string advice(const fs::path& directory, const Version& wanted) {
  const Version& other = version_of(wanted.variant == CifarVariant::kCifar10);
  if (has_any(directory, other.train) || is_there(directory / other.inner_folder)) {
    return concat("the folder holds ", other.title, ", not ", wanted.title);
  }
  if (has_any(directory, wanted.python_files)) {
    return concat(
        "the folder holds the Python version of ", wanted.title, "; get the binary version");
  }
  return concat("name the folder in which the binary version of ", wanted.title, " was unpacked");
}

InMemoryImages read_cifar_set(const fs::path& directory, bool train, bool hundred) {
  const Version& version = version_of(hundred);
  const auto paths = cifar_files(directory, train, hundred);
  for (const fs::path& path : paths) {
    if (!is_there(path))
      throw DataError(concat(path.string(), ": no such file; ", advice(directory, version)));
  }
  CifarImages images = read_cifar(paths, version.variant);
  return InMemoryImages({.name = version.name,
      .shape = {.channels = 3, .height = kCifarSide, .width = kCifarSide},
      .classes = version.classes,
      .pixels = std::move(images.pixels),
      .labels = std::move(images.labels)});
}

constexpr int kMnistClasses = 10;

fs::path find_file(const fs::path& directory, const std::string& name, const std::string& advice) {
  for (const auto& path : {directory / name, directory / (name + ".gz")}) {
    if (is_there(path)) return path;
  }
  throw DataError(concat((directory / name).string(), "[.gz]: no such file; ", advice));
}

InMemoryImages read_mnist_set(
    const std::string& name, const fs::path& directory, bool train, const std::string& advice) {
  const std::string prefix = train ? "train" : "t10k";
  const auto images = find_file(directory, prefix + "-images-idx3-ubyte", advice);
  const auto labels = find_file(directory, prefix + "-labels-idx1-ubyte", advice);
  LabelledImages set = read_labelled_images(images, labels, kMnistClasses);
  return InMemoryImages({.name = name,
      .shape = {.channels = 1, .height = set.rows, .width = set.columns},
      .classes = kMnistClasses,
      .pixels = std::move(set.pixels),
      .labels = std::move(set.labels)});
}

void check_mock(const MockOptions& options) {
  check(options.size > 0, "mock: the size must be positive: ", options.size);
  check(1 <= options.classes && options.classes <= 256,
      "mock: classes must be 1 to 256: ", options.classes);
  const auto& shape = options.shape;
  for (const std::int64_t extent : {shape.channels, shape.height, shape.width}) {
    check(1 <= extent && extent <= 65536, "mock: an image must have 1 to 65536 of each: ", extent);
  }
}

// A line for each class; CIFAR-10's file ends with an empty one.
std::vector<std::string> lines_of(const fs::path& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) lines.push_back(line);
  }
  return lines;
}

std::vector<std::string> cifar_names(const fs::path& directory, bool hundred) {
  const fs::path folder = cifar_files(directory, true, hundred).front().parent_path();
  return lines_of(folder / (hundred ? "fine_label_names.txt" : "batches.meta.txt"));
}

}  // namespace

InMemoryImages::InMemoryImages(Parts parts) {
  check_parts(parts);
  parts_ = std::make_shared<const Parts>(std::move(parts));
}

InMemoryImages InMemoryImages::repeated(std::int64_t times) const {
  check(1 <= times && times <= std::numeric_limits<std::int64_t>::max() / size(),
      "InMemoryImages: a set is repeated at least once, and its size must not overflow: ", times,
      " times");
  InMemoryImages longer = *this;
  longer.repetitions_ *= times;
  return longer;
}

std::vector<fs::path> cifar_files(const fs::path& directory, bool train, bool hundred) {
  const Version& version = version_of(hundred);
  const fs::path inner = directory / version.inner_folder;
  std::vector<fs::path> paths = train ? version.train : version.test;
  for (fs::path& path : paths) path = (is_there(inner) ? inner : directory) / path;
  return paths;
}

InMemoryImages cifar10(const fs::path& directory, bool train) {
  return read_cifar_set(directory, train, false);
}

InMemoryImages cifar100(const fs::path& directory, bool train) {
  return read_cifar_set(directory, train, true);
}

InMemoryImages fashion_mnist(const fs::path& directory, bool train) {
  return read_mnist_set(
      "fashion-mnist", directory, train, "apt install dataset-fashion-mnist, or name its folder");
}

InMemoryImages mnist(const fs::path& directory, bool train) {
  return read_mnist_set(
      "mnist", directory, train, "name the folder that holds the four files of MNIST");
}

InMemoryImages mock(const MockOptions& options) {
  check_mock(options);
  // The standard fixes this engine's numbers but not those of its distributions.
  std::mt19937_64 engine(options.seed);
  std::vector<std::uint8_t> pixels(
      static_cast<std::size_t>(options.size * options.shape.elements()));
  std::vector<std::uint8_t> labels(static_cast<std::size_t>(options.size));
  for (auto& pixel : pixels) pixel = static_cast<std::uint8_t>(engine() >> 56);
  for (auto& label : labels) {
    label =
        static_cast<std::uint8_t>((engine() >> 32) % static_cast<std::uint64_t>(options.classes));
  }
  return InMemoryImages({.name = "mock",
      .shape = options.shape,
      .classes = options.classes,
      .pixels = std::move(pixels),
      .labels = std::move(labels)});
}

std::vector<std::string> class_names(const std::string& set, const fs::path& directory) {
  if (set == "images") return open_image_folders(directory).train.class_names();
  if (set == "cifar10" || set == "cifar100") return cifar_names(directory, set == "cifar100");
  if (set == "mnist") return {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
  if (set == "fashion-mnist")
    return {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker",
        "Bag", "Ankle boot"};
  return {};
}

}  // namespace lockstep::data
