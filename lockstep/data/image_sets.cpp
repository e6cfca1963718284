#include "lockstep/data/image_sets.h"

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/formats/byte_fields.h"
#include "lockstep/formats/cifar.h"
#include "lockstep/formats/idx.h"

namespace lockstep::data {
namespace {

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

Version version10() {
  return {.name = "cifar10",
      .title = "CIFAR-10",
      .variant = CifarVariant::kCifar10,
      .classes = 10,
      .inner_folder = "cifar-10-batches-bin",
      .train = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
          "data_batch_5.bin"},
      .test = {"test_batch.bin"},
      .python_files = {"data_batch_1", "cifar-10-batches-py"}};
}

Version version100() {
  return {.name = "cifar100",
      .title = "CIFAR-100",
      .variant = CifarVariant::kCifar100,
      .classes = 100,
      .inner_folder = "cifar-100-binary",
      .train = {"train.bin"},
      .test = {"test.bin"},
      .python_files = {"train", "cifar-100-python"}};
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  // What is there but no file, such as a loop of links, is left to the reader to name.
  return fs::exists(fs::symlink_status(path, ignored));
}

bool has_any(const fs::path& directory, const std::vector<fs::path>& names) {
  for (const auto& name : names) {
    if (is_there(directory / name)) return true;
  }
  return false;
}

/// Guesses why a file is missing.
std::string advice(const fs::path& directory, const Version& wanted) {
  const Version other = wanted.variant == CifarVariant::kCifar10 ? version100() : version10();
  if (has_any(directory, other.train) || is_there(directory / other.inner_folder)) {
    return concat("the folder holds ", other.title, ", not ", wanted.title);
  }
  if (has_any(directory, wanted.python_files)) {
    return concat(
        "the folder holds the Python version of ", wanted.title, "; get the binary version");
  }
  return concat("name the folder in which the binary version of ", wanted.title, " was unpacked");
}

std::vector<fs::path> files_of(const fs::path& directory, bool train, const Version& version) {
  const fs::path inner = directory / version.inner_folder;
  std::vector<fs::path> paths = train ? version.train : version.test;
  for (fs::path& path : paths) path = (is_there(inner) ? inner : directory) / path;
  return paths;
}

std::vector<fs::path> found_files(const fs::path& directory, bool train, const Version& version) {
  auto paths = files_of(directory, train, version);
  for (const fs::path& path : paths) {
    if (!is_there(path)) refuse_at(path.string(), 0, "no such file; ", advice(directory, version));
  }
  return paths;
}

InMemoryImages read_cifar_set(const fs::path& directory, bool train, const Version& version) {
  CifarImages images = read_cifar(found_files(directory, train, version), version.variant);
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
  refuse_at((directory / name).string() + "[.gz]", 0, "no such file; ", advice);
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

}  // namespace

std::vector<fs::path> cifar_files(const fs::path& directory, bool train, bool hundred) {
  return files_of(directory, train, hundred ? version100() : version10());
}

InMemoryImages cifar10(const fs::path& directory, bool train) {
  return read_cifar_set(directory, train, version10());
}

InMemoryImages cifar100(const fs::path& directory, bool train) {
  return read_cifar_set(directory, train, version100());
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

}  // namespace lockstep::data
