#include "lockstep/bench/studies/training_images.h"

#include <filesystem>

#include "lockstep/core/error.h"
#include "lockstep/data/image_sets.h"
#include "lockstep/formats/idx.h"

namespace lockstep::bench {
namespace {

namespace fs = std::filesystem;

fs::path folder_of(const std::string& data) {
  if (data == "fashion-mnist") return data::kFashionMnistDirectory;
  for (const std::string start : {"fashion-mnist:", "mnist:"}) {
    if (data.starts_with(start) && data.size() > start.size()) return data.substr(start.size());
  }
  throw InvalidArgument(concat(
      "bench: --data must be fashion-mnist, fashion-mnist:DIR or mnist:DIR: ", data,
      data == "mnist" ? " (name the folder that holds its four files)" : ""));
}

}  // namespace

std::int64_t training_images(const std::string& data) {
  const fs::path folder = folder_of(data);
  const std::string name = "train-labels-idx1-ubyte";
  for (const fs::path& path : {folder / name, folder / (name + ".gz")}) {
    if (fs::exists(path)) return read_idx(path, 1).shape.front();
  }
  throw DataError(concat(
      (folder / name).string(), "[.gz]: no such file; ",
      data == "fashion-mnist" ? "apt install dataset-fashion-mnist, or --data fashion-mnist:DIR"
                              : "name the folder that holds the four files of the set"));
}

}  // namespace lockstep::bench
