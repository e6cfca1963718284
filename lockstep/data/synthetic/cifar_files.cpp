#include <string>
#include <vector>

#include "lockstep/data/synthetic/set_file.h"
#include "lockstep/data/synthetic/set_writers.h"
#include "lockstep/data/synthetic/shape.h"
#include "lockstep/data/synthetic/synthetic.h"
#include "lockstep/data/synthetic/texture.h"
#include "lockstep/formats/cifar.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kBatches = 5;

/// Groups the classes of CIFAR-100 as the real set does, 5 in each of 20: here by shape and half of
/// the textures.
std::int64_t coarse_label(std::int64_t label) {
  constexpr std::int64_t kPerGroup = 5;
  return label % kShapes * 2 + label / kShapes / kPerGroup;
}

/// Gives a record: its labels, then the planes red, green, blue.
std::vector<std::uint8_t> record_of(std::int64_t index, bool train, const SetPlan& plan) {
  const std::int64_t label = index % plan.classes;
  const Image image = synthetic_image(
      synthetic_class(label, plan.classes), {.seed = plan.seed, .train = train, .index = index},
      {kCifarSide, kCifarSide}, 3);
  std::vector<std::uint8_t> record;
  record.reserve(image.pixels.size() + 2);
  if (plan.classes == 100) record.push_back(static_cast<std::uint8_t>(coarse_label(label)));
  record.push_back(static_cast<std::uint8_t>(label));
  for (std::size_t channel = 0; channel < 3; ++channel) {
    for (std::size_t at = channel; at < image.pixels.size(); at += 3) {
      record.push_back(image.pixels[at]);
    }
  }
  return record;
}

std::uint64_t write_batch(
    const fs::path& path, std::int64_t first, std::int64_t end, bool train, const SetPlan& plan) {
  SetFile file(path, false);
  for (std::int64_t index = first; index < end; ++index) {
    file.write(record_of(index, train, plan));
    plan.drawn();
  }
  return file.close();
}

std::uint64_t write_lines(const fs::path& path, const std::vector<std::string>& lines) {
  SetFile file(path, false);
  for (const auto& line : lines) file.write(line + "\n");
  return file.close();
}

std::vector<std::string> class_names(std::int64_t classes) {
  std::vector<std::string> names;
  for (std::int64_t label = 0; label < classes; ++label) {
    names.push_back(synthetic_class(label, classes).name());
  }
  return names;
}

std::vector<std::string> coarse_names() {
  std::vector<std::string> names;
  for (std::int64_t shape = 0; shape < kShapes; ++shape) {
    for (const std::int64_t half : {0, 5}) {
      names.push_back(
          std::string(shape_name(shape)) + "-" + texture_name(half) + "-to-" +
          texture_name(half + 4));
    }
  }
  return names;
}

}  // namespace

Written write_cifar10_files(const fs::path& folder, const SetPlan& plan) {
  const fs::path inner = folder / "cifar-10-batches-bin";
  fs::create_directory(inner);
  std::uint64_t bytes = write_lines(inner / "batches.meta.txt", class_names(plan.classes));
  for (std::int64_t batch = 0; batch < kBatches; ++batch) {
    bytes += write_batch(
        inner / ("data_batch_" + std::to_string(batch + 1) + ".bin"), plan.train * batch / kBatches,
        plan.train * (batch + 1) / kBatches, true, plan);
  }
  bytes += write_batch(inner / "test_batch.bin", 0, plan.test, false, plan);
  return {kBatches + 2, bytes};
}

Written write_cifar100_files(const fs::path& folder, const SetPlan& plan) {
  const fs::path inner = folder / "cifar-100-binary";
  fs::create_directory(inner);
  const std::uint64_t bytes =
      write_lines(inner / "fine_label_names.txt", class_names(plan.classes)) +
      write_lines(inner / "coarse_label_names.txt", coarse_names()) +
      write_batch(inner / "train.bin", 0, plan.train, true, plan) +
      write_batch(inner / "test.bin", 0, plan.test, false, plan);
  return {4, bytes};
}

}  // namespace lockstep::data
