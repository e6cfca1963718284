#include <cstdio>
#include <string>

#include "lockstep/data/synthetic/set_file.h"
#include "lockstep/data/synthetic/set_writers.h"
#include "lockstep/data/synthetic/stream.h"
#include "lockstep/data/synthetic/synthetic.h"
#include "lockstep/formats/image/image_encoder.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kEachPng = 8;

/// Draws a size as photographs have them: the shorter side 160 to 320, the other up to half longer.
ImageSize draw_size(SyntheticStream& stream) {
  const std::int64_t shorter = stream.between(160, 320);
  const std::int64_t longer = shorter * stream.between(100, 150) / 100;
  return stream.between(0, 2) == 0 ? ImageSize{shorter, longer} : ImageSize{longer, shorter};
}

JpegOptions draw_jpeg_options(SyntheticStream& stream) {
  JpegOptions options;
  options.quality = static_cast<int>(stream.between(80, 95));
  options.horizontal_subsampling = static_cast<int>(stream.between(1, 2));
  options.vertical_subsampling =
      options.horizontal_subsampling == 1 ? 1 : static_cast<int>(stream.between(1, 2));
  return options;
}

/// Gives `000123.jpg`, and each eighth image of a class `000123.png`.
std::string file_name(std::int64_t index, bool png) {
  char name[32];
  std::snprintf(
      name, sizeof(name), "%06lld.%s", static_cast<long long>(index), png ? "png" : "jpg");
  return name;
}

std::uint64_t write_image(
    const fs::path& folder, std::int64_t index, bool train, const SetPlan& plan) {
  const SyntheticClass kind = synthetic_class(index % plan.classes, plan.classes);
  const SyntheticKey key{.seed = plan.seed, .train = train, .index = index};
  SyntheticStream stream(
      SyntheticStream::mix(plan.seed) ^ static_cast<std::uint64_t>(2 * index + (train ? 1 : 0)));
  const ImageSize drawn = draw_size(stream);
  const Image image = synthetic_image(kind, key, plan.size.value_or(drawn), 3);
  const bool png = index / plan.classes % kEachPng == kEachPng - 1;
  SetFile file(folder / kind.name() / file_name(index, png), false);
  file.write(png ? encode_png(image.view()) : encode_jpeg(image.view(), draw_jpeg_options(stream)));
  plan.drawn();
  return file.close();
}

std::uint64_t write_part(const fs::path& folder, bool train, const SetPlan& plan) {
  fs::create_directory(folder);
  for (std::int64_t label = 0; label < plan.classes; ++label) {
    fs::create_directory(folder / synthetic_class(label, plan.classes).name());
  }
  std::uint64_t bytes = 0;
  const std::int64_t count = train ? plan.train : plan.test;
  for (std::int64_t index = 0; index < count; ++index) {
    bytes += write_image(folder, index, train, plan);
  }
  return bytes;
}

}  // namespace

Written write_image_files(const fs::path& folder, const SetPlan& plan) {
  const std::uint64_t bytes =
      write_part(folder / "train", true, plan) + write_part(folder / "val", false, plan);
  return {plan.train + plan.test, bytes};
}

}  // namespace lockstep::data
