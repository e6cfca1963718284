#include "lockstep/data/class_names.h"

#include <fstream>

#include "lockstep/data/image_folder.h"
#include "lockstep/data/image_sets.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

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
