// Times what one core makes of images a second with timm's augmentation: of small ones that lie in
// memory, and of JPEG files' bytes. benchmarks/augment.py makes the files and runs it beside timm.
//
//     augment_benchmark --pixels FILE --side 32 --output 32
//     augment_benchmark --jpegs FILE --output 224 [--decoded]

#include "lockstep/data/transforms/augment.h"

#include <cstdio>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <vector>

#include "pipeline/machine_load.h"

#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/flags/flag_table.h"
#include "lockstep/formats/image/image_reader.h"
#include "lockstep/formats/input_file.h"

namespace lockstep::benchmark {
namespace {

using Bytes = std::vector<std::uint8_t>;

struct Flags {
  std::string pixels;
  std::string jpegs;
  std::int64_t side = 32;
  std::int64_t output = 32;
  std::string augment = "timm";
  bool decoded = false;
  double seconds = 2;
};

Bytes bytes_of(const std::string& path) {
  InputFile file(path);
  Bytes bytes(std::filesystem::file_size(path));
  check(file.read(bytes) == bytes.size(), path, ": the file has become shorter");
  return bytes;
}

std::vector<Image> images_of(const Bytes& bytes, std::int64_t side) {
  const auto size = static_cast<std::size_t>(side * side * 3);
  check(!bytes.empty() && bytes.size() % size == 0, "the file holds no whole images");
  std::vector<Image> images;
  for (auto at = bytes.begin(); at != bytes.end(); at += std::ssize(images.back().pixels)) {
    images.push_back({{side, side}, 3, Bytes(at, at + static_cast<std::ptrdiff_t>(size))});
  }
  return images;
}

// The files follow each other, each after its length in 4 bytes, the lowest first.
std::vector<Bytes> files_of(const Bytes& bytes) {
  std::vector<Bytes> files;
  for (std::size_t at = 0; at < bytes.size(); at += 4 + files.back().size()) {
    check(bytes.size() - at >= 4, "the file ends in a length");
    const std::size_t size =
        bytes[at] + bytes[at + 1] * std::size_t{256} + bytes[at + 2] * std::size_t{65536};
    check(bytes[at + 3] == 0 && size <= bytes.size() - at - 4, "the file ends in a JPEG");
    const auto start = bytes.begin() + static_cast<std::ptrdiff_t>(at + 4);
    files.emplace_back(start, start + static_cast<std::ptrdiff_t>(size));
  }
  return files;
}

using Transform = std::function<void(std::int64_t sample, const data::SampleKey& key)>;

// Of the processor's own time, which other programs on a busy machine disturb least. Goes through
// the samples again and again, another epoch each time; the first one warms up.
void time_epochs(std::int64_t samples, double seconds, const Transform& transform) {
  const auto run_epoch = [&](std::int64_t epoch) {
    for (std::int64_t i = 0; i < samples; ++i)
      transform(i, {.seed = 1, .epoch = epoch, .index = i});
  };
  run_epoch(0);
  const double start = cpu_seconds();
  std::int64_t epochs = 0;
  while (cpu_seconds() - start < seconds) run_epoch(++epochs);
  const auto done = static_cast<double>(epochs * samples);
  std::printf("{\"images_per_second\": %.1f}\n", done / (cpu_seconds() - start));
}

std::unique_ptr<const data::ImageTransform> transform_of(const Flags& flags) {
  const ImageSize output{flags.output, flags.output};
  const std::map<std::string, data::AugmentKind> kinds{{"none", data::AugmentKind::kNone},
      {"crop-flip", data::AugmentKind::kCropFlip}, {"timm", data::AugmentKind::kTimm}};
  return data::make_train_transform(data::augment_options(kinds.at(flags.augment), output));
}

void time_images(const Flags& flags, const std::vector<Image>& images) {
  const auto transform = transform_of(flags);
  std::vector<float> out(static_cast<std::size_t>(flags.output * flags.output * 3));
  Image part;
  time_epochs(std::ssize(images), flags.seconds, [&](std::int64_t sample, const auto& key) {
    const Image& image = images[static_cast<std::size_t>(sample)];
    crop(image.view(), transform->region(image.size, key), part);
    transform->apply(part.view(), key, out);
  });
}

void time_pixels(const Flags& flags) {
  time_images(flags, images_of(bytes_of(flags.pixels), flags.side));
}

// As later epochs of --cache-decoded find them.
void time_decoded_jpegs(const Flags& flags) {
  std::vector<Image> images;
  for (const Bytes& file : files_of(bytes_of(flags.jpegs)))
    images.push_back(decode_image(file, "sample"));
  time_images(flags, images);
}

void time_jpegs(const Flags& flags) {
  const auto files = files_of(bytes_of(flags.jpegs));
  const auto transform = transform_of(flags);
  std::vector<float> out(static_cast<std::size_t>(flags.output * flags.output * 3));
  Image part;
  time_epochs(std::ssize(files), flags.seconds, [&](std::int64_t sample, const auto& key) {
    const ImageReader reader(files[static_cast<std::size_t>(sample)], "sample");
    reader.read(transform->region(reader.size(), key), part);
    transform->apply(part.view(), key, out);
  });
}

int run(int argc, char** argv) {
  const FlagTable<Flags> table(
      {"augment_benchmark", "augment_benchmark [flags]", "Times augmentation on one core.\n", ""},
      {{"Options",
          {flag("--pixels", "FILE", "images of 3 channels, byte by byte", &Flags::pixels),
              flag("--jpegs", "FILE", "JPEGs, each after its length", &Flags::jpegs),
              flag_on("--decoded", "decode the JPEGs before", &Flags::decoded),
              flag("--side", "N", "of the images of --pixels", &Flags::side),
              flag("--output", "N", "side of what comes out", &Flags::output),
              flag("--augment", "HOW", "{}", &Flags::augment).one_of({"none", "crop-flip", "timm"}),
              flag("--seconds", "X", "to measure for", &Flags::seconds)}}});
  const auto request = table.request({argv + 1, argv + argc}, std::cout);
  if (!request) return 0;
  const Flags& flags = *request;
  if (flags.jpegs.empty()) {
    time_pixels(flags);
  } else {
    flags.decoded ? time_decoded_jpegs(flags) : time_jpegs(flags);
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::benchmark

int main(int argc, char** argv) {
  return lockstep::run_program("augment_benchmark", lockstep::benchmark::run, argc, argv);
}
