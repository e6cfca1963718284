#include <algorithm>
#include <array>
#include <initializer_list>

#include "lockstep/core/error.h"
#include "lockstep/data/image_folder.h"
#include "lockstep/data/image_folder_list.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

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
    throw DataError(concat(
        printable(directory.native()), ": the folder ", printable(name),
        " stands beside the folder train; a set has either parts (train, val, test) or classes"));
  }
}

std::optional<ImageFolder> open_part(
    const fs::path& directory, const char* name, const ImageFolder& train) {
  const fs::path path = directory / name;
  if (!fs::is_directory(path)) return std::nullopt;
  ImageFolder part(path);
  const auto& expected = train.class_names();
  const auto& found = part.class_names();
  if (found == expected) return part;
  const auto [missing, extra] =
      std::mismatch(expected.begin(), expected.end(), found.begin(), found.end());
  const bool is_extra = missing == expected.end() || (extra != found.end() && *extra < *missing);
  throw DataError(concat(
      printable(path.native()), ": the classes must be those of ", kTrain, ": ",
      printable(is_extra ? *extra : *missing), is_extra ? " is not there" : " is missing"));
}

std::optional<ImageFolder> open_validation(const fs::path& directory, const ImageFolder& train) {
  std::optional<ImageFolder> validation;
  for (const char* name : kValidation) {
    auto part = open_part(directory, name, train);
    if (part && validation) {
      throw DataError(concat(
          printable(directory.native()), ": two folders to validate with: ",
          validation->directory().filename().native(), " and ", name));
    }
    if (part) validation = std::move(part);
  }
  return validation;
}

}  // namespace

ImageFolders open_image_folders(const fs::path& directory) {
  if (!fs::is_directory(directory / kTrain)) {
    return {.train = ImageFolder(directory), .validation = std::nullopt, .test = std::nullopt};
  }
  check_only_parts(directory);
  ImageFolder train(directory / kTrain);
  auto validation = open_validation(directory, train);
  auto test = open_part(directory, kTest, train);
  return {.train = std::move(train), .validation = std::move(validation), .test = std::move(test)};
}

}  // namespace lockstep::data
