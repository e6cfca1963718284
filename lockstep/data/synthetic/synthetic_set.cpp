#include "lockstep/data/synthetic/synthetic_set.h"

#include <algorithm>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/data/synthetic/set_writers.h"
#include "lockstep/data/synthetic/synthetic.h"
#include "lockstep/formats/cifar.h"
#include "lockstep/formats/idx.h"
#include "lockstep/formats/output_file.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

/// The properties of a set if nothing else is asked for.
struct Kind {
  std::string name;
  std::int64_t train;
  std::int64_t test;
  std::int64_t classes;
  std::int64_t least;  // images to train with
  std::int64_t most;
  Written (*write)(const fs::path& folder, const SetPlan& plan);
};

constexpr std::int64_t kMostMnist = static_cast<std::int64_t>(kMaximumIdxBytes / (28 * 28));
constexpr std::int64_t kMostCifar =
    static_cast<std::int64_t>(kMaximumCifarBytes / (3 * kCifarSide * kCifarSide));
constexpr std::int64_t kMostImages = 10'000'000;
constexpr std::int64_t kLongestSide = 4096;

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> kAll{
      {"mnist", 60'000, 10'000, 10, 1, kMostMnist, write_mnist_files},
      {"fashion-mnist", 60'000, 10'000, 10, 1, kMostMnist, write_mnist_files},
      {"cifar10", 50'000, 10'000, 10, 5, kMostCifar, write_cifar10_files},
      {"cifar100", 50'000, 10'000, 100, 1, kMostCifar, write_cifar100_files},
      {"images", 2'000, 500, 20, 2, kMostImages, write_image_files}};
  return kAll;
}

const Kind& kind_of(const std::string& name) {
  for (const Kind& kind : kinds()) {
    if (kind.name == name) return kind;
  }
  throw InvalidArgument(
      concat("synthesize: there is no set ", name, "; there are ", joined(synthetic_set_names())));
}

void check_count(const Kind& kind, const char* what, std::int64_t count, std::int64_t least) {
  check(least <= count && count <= kind.most, "synthesize: --", what, " of ", kind.name,
      " must be ", least, " to ", kind.most, ": ", count);
}

void check_options(const Kind& kind, const SyntheticOptions& options) {
  const bool images = kind.write == write_image_files;
  check(images || !options.classes, "synthesize: ", kind.name, " has ", kind.classes,
      " classes; --classes is for images");
  check(images || !options.size, "synthesize: --size is for images, not for ", kind.name);
  check(!options.gzip || kind.write == write_mnist_files,
      "synthesize: --gzip is for mnist and fashion-mnist, not for ", kind.name);
  const std::int64_t classes = options.classes.value_or(kind.classes);
  check(2 <= classes && classes <= kMostSyntheticClasses,
      "synthesize: --classes must be 2 to 100: ", classes);
  if (!options.size) return;
  const auto& size = *options.size;
  check(std::min(size.width, size.height) >= 8 && std::max(size.width, size.height) <= kLongestSide,
      "synthesize: --size must have sides of 8 to 4096 pixels: ", size.width, "x", size.height);
}

SetPlan plan_of(const Kind& kind, const SyntheticOptions& options) {
  check_options(kind, options);
  const std::int64_t classes = options.classes.value_or(kind.classes);
  // A class folder without images would be no set.
  const bool images = kind.write == write_image_files;
  SetPlan plan{.train = options.train.value_or(kind.train),
      .test = options.test.value_or(kind.test),
      .classes = classes,
      .size = options.size,
      .seed = options.seed,
      .gzip = options.gzip,
      .drawn = {}};
  check_count(kind, "train", plan.train, images ? classes : kind.least);
  check_count(kind, "test", plan.test, images ? classes : 1);
  return plan;
}

}  // namespace

const std::vector<std::string>& synthetic_set_names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> all;
    for (const Kind& kind : kinds()) all.push_back(kind.name);
    return all;
  }();
  return kNames;
}

SyntheticSummary write_synthetic_set(
    const std::string& name, const fs::path& directory, const SyntheticOptions& options) {
  const Kind& kind = kind_of(name);
  SetPlan plan = plan_of(kind, options);
  std::int64_t done = 0;
  plan.drawn = [&] {
    ++done;
    if (options.progress) options.progress(done, plan.train + plan.test);
  };
  AtomicDirectory folder(directory);
  const Written written = kind.write(folder.path(), plan);
  folder.commit();
  return {plan.train, plan.test, plan.classes, written.files, written.bytes};
}

}  // namespace lockstep::data
