#include "lockstep/data/mnist.h"

#include <string>

#include "lockstep/core/error.h"
#include "lockstep/formats/labelled_images.h"

namespace lockstep::data {
namespace {

constexpr int kClasses = 10;

std::filesystem::path find_file(
    const std::filesystem::path& directory, const std::string& name, const std::string& advice) {
  std::error_code ignored;
  for (const auto& path : {directory / name, directory / (name + ".gz")}) {
    // What is there but no file, such as a loop of links, is left to the reader to name.
    const auto status = std::filesystem::symlink_status(path, ignored);
    if (std::filesystem::exists(status)) return path;
  }
  throw DataError(concat((directory / name).string(), "[.gz]: offset 0: no such file; ", advice));
}

InMemoryImages read_set(
    const std::string& name, const std::filesystem::path& directory, bool train,
    const std::string& advice) {
  const std::string prefix = train ? "train" : "t10k";
  const auto images = find_file(directory, prefix + "-images-idx3-ubyte", advice);
  const auto labels = find_file(directory, prefix + "-labels-idx1-ubyte", advice);
  LabelledImages set = read_labelled_images(images, labels, kClasses);
  return InMemoryImages(
      {.name = name,
       .shape = {.channels = 1, .height = set.rows, .width = set.columns},
       .classes = kClasses,
       .pixels = std::move(set.pixels),
       .labels = std::move(set.labels)});
}

}  // namespace

InMemoryImages fashion_mnist(const std::filesystem::path& directory, bool train) {
  return read_set(
      "fashion-mnist", directory, train, "apt install dataset-fashion-mnist, or name its folder");
}

InMemoryImages mnist(const std::filesystem::path& directory, bool train) {
  return read_set("mnist", directory, train, "name the folder that holds the four files of MNIST");
}

}  // namespace lockstep::data
