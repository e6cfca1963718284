#include "lockstep/formats/labelled_images.h"

#include <algorithm>

#include "lockstep/core/error.h"
#include "lockstep/formats/idx.h"

namespace lockstep {
namespace {

constexpr std::size_t kLabelHeaderBytes = 8;

void check_labels(
    const std::filesystem::path& path, const std::vector<std::uint8_t>& labels, int classes) {
  const auto bad = std::find_if(
      labels.begin(), labels.end(), [&](std::uint8_t label) { return label >= classes; });
  if (bad == labels.end()) return;
  const auto index = static_cast<std::size_t>(bad - labels.begin());
  throw DataError(concat(
      path.string(), ": offset ", kLabelHeaderBytes + index, ": label out of range (>= ", classes,
      ") at index ", index, ": ", int{*bad}));
}

}  // namespace

LabelledImages read_labelled_images(
    const std::filesystem::path& images, const std::filesystem::path& labels, int classes) {
  IdxArray pictures = read_idx(images, 3);
  IdxArray answers = read_idx(labels, 1);
  if (pictures.shape[0] != answers.shape[0]) {
    throw DataError(concat(
        labels.string(), ": offset 4: image and label counts differ: ", pictures.shape[0],
        " images in ", images.string(), ", ", answers.shape[0], " labels"));
  }
  check_labels(labels, answers.values, classes);
  return {
      .rows = pictures.shape[1],
      .columns = pictures.shape[2],
      .pixels = std::move(pictures.values),
      .labels = std::move(answers.values)};
}

}  // namespace lockstep
