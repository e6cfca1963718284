#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>

#include "lockstep/cli/data/data.h"
#include "lockstep/cli/data/sheet_page.h"
#include "lockstep/cli/train/mains.h"
#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/core/text.h"
#include "lockstep/flags/flag_table.h"
#include "lockstep/formats/output_file.h"
#include "lockstep/nn/models/catalogue.h"
#include "lockstep/nn/models/plugin_library.h"
#include "lockstep/train/input/data_sheet.h"

namespace lockstep::cli {
namespace {

/// The request of `lockstep data show`.
struct ShowRequest {
  std::string set, directory;
  SheetRequest sheet;
  std::string output;
};

constexpr const char* kShowDescription =
    R"(Makes one HTML file to look at a data set before training on it: images with their classes, what
the augmentation makes of each of them, how many images each class has, and which of them each rank
gets. All of it by the code and the seed of lockstep train, whose flags these are.

The sets are mnist, fashion-mnist, cifar10, cifar100, mock, images, a folder of class folders, tensors,
tokens, text, and those of --plugin. Samples that are no pictures have a table of their numbers.
)";

constexpr const char* kShowExamples = R"(Examples:
  lockstep data show fashion-mnist --output clothes.html
  lockstep data show cifar100 /data/cifar100 --augment crop-flip --count 32 --output cifar.html
  lockstep data show images:/data/flowers --augment timm --ranks 4 --output flowers.html
  lockstep data show tokens:/data/shakespeare --sequence-length 64 --output words.html

Exit codes: 0 done, 2 bad flags, 3 bad data or samples that cannot be read, 4 no permission or disk.)";

using R = ShowRequest;
using Group = FlagGroup<R>;

Group set_group() {
  return {"Arguments", {flag("NAME", "", "the set, or NAME:DIR", &R::set).required(),
                           flag("DIR", "", "folder of its files", &R::directory)}};
}

Group training_group() {
  constexpr auto kOptions = &SheetRequest::options;
  using Options = TrainOptions;
  using Set = LoadingSettings;
  const auto loading = &Options::loading;
  return {"As for lockstep train",
      {flag("--augment", "HOW", "augmentation: {}", &R::sheet, kOptions, loading, &Set::augment),
          flag("--classes", "NAME,NAME",
              "of images: only these class folders, numbered in this order", &R::sheet, kOptions,
              &Options::data, &DataSource::classes)
              .usually("all, numbered by name"),
          flag("--sequence-length", "T", "of tokens and text: tokens of a sample", &R::sheet,
              kOptions, &Options::data, &DataSource::sequence_length)
              .from(1),
          flag("--inputs", "NAME,NAME", "of tensors: those that the model takes", &R::sheet,
              kOptions, &Options::data, &DataSource::inputs)
              .usually("all that are no targets"),
          flag("--targets", "NAME,NAME", "of tensors: those that are to be learned", &R::sheet,
              kOptions, &Options::data, &DataSource::targets)
              .usually("target, targets, label, labels, y, target.*, label.*"),
          flag("--image-size", "N", "height and width that the model sees", &R::sheet, kOptions,
              loading, &Set::image_size)
              .within(1, 16384)
              .usually("images 224; others as they are"),
          flag("--val-split", "X", "share of the training set that becomes --split val, or test",
              &R::sheet, kOptions, loading, &Set::val_split)
              .fraction(),
          flag("--model", "NAME", "for which images and mock have their usual size", &R::sheet,
              kOptions, &Options::model)
              .one_of(nn::model_names()),
          flag("--plugin", "FILE", "shared library with a set of your own (docs/plugins.md)",
              &R::sheet, kOptions, &Options::plugin),
          flag("--seed", "N", "seed of shuffling and of augmentation", &R::sheet, kOptions,
              &Options::seed)
              .from(0)}};
}

Group page_group() {
  using Sheet = SheetRequest;
  return {"The page",
      {flag("--output", "FILE", "the page; overwrites an existing file", &R::output).required(),
          flag("--split", "PART", "the images to show: {}", &R::sheet, &Sheet::part),
          flag("--count", "N", "images to show", &R::sheet, &Sheet::samples).within(1, 1000),
          flag("--draws", "N", "draws of the augmentation for each, in epochs from the first on",
              &R::sheet, &Sheet::draws)
              .within(1, 32),
          flag("--ranks", "N", "replicas that share the images", &R::sheet, &Sheet::ranks)
              .within(1, 256)}};
}

DataSource checked_source(const R& request) {
  static const std::vector<std::string> kSets{"mnist", "fashion-mnist", "cifar10", "cifar100",
      "mock", "images", "tensors", "tokens", "text"};
  const DataPlace place = data_place("show", request.set, request.directory);
  const bool is_ours = std::ranges::find(kSets, place.name) != kSets.end();
  check(is_ours || !request.sheet.options.plugin.empty(), "data show: there is no set ", place.name,
      did_you_mean(place.name, kSets), " (the sets are ", joined(kSets), " and those of --plugin)");
  const bool needs_folder = is_ours && place.name != "mock" && place.name != "fashion-mnist";
  check(!needs_folder || !place.directory.empty(), "data show: name the folder of ", place.name,
      ": ", place.name, ":DIR");
  DataSource source = request.sheet.options.data;
  source.name = place.name;
  source.directory = place.directory.string();
  return source;
}

/// Reads what stands after `lockstep data show`; nothing if it asks for help, which is then
/// printed. The data set has a folder afterwards, unless it needs none.
std::optional<ShowRequest> show_request(const std::vector<std::string>& arguments) {
  const FlagTable<R> table({.verb = "data show",
                               .usage = "lockstep data show NAME DIR --output FILE [flags]",
                               .description = kShowDescription,
                               .footer = kShowExamples},
      {set_group(), training_group(), page_group()});
  auto request = table.request(arguments, std::cout);
  if (!request) return std::nullopt;
  request->sheet.options.data = checked_source(*request);
  check(request->sheet.part == SheetPart::kTrain ||
            request->sheet.options.loading.augment == Augment::kNone,
      "data show: --augment is for images to train with, not for --split ",
      name_of(request->sheet.part));
  check(!std::filesystem::is_directory(request->output),
      "data show: --output is a folder, name a file in it: ", request->output);
  return request;
}

}  // namespace

int show_data(const std::vector<std::string>& arguments) {
  const auto request = show_request({arguments.begin() + 1, arguments.end()});
  if (!request) return 0;
  const std::string& plugin = request->sheet.options.plugin;
  if (!plugin.empty()) nn::load_plugin(plugin);
  AtomicFile page(request->output);  // before the work, not after
  const DataSheet sheet = make_data_sheet(request->sheet);
  page.write(sheet_page(request->sheet, sheet));
  page.commit();
  const auto failed = std::ranges::count_if(
      sheet.samples, [](const SheetSample& sample) { return !sample.failure.empty(); });
  const bool is_images = plugin.empty() && !is_tensor_set(request->sheet.options.data.name);
  std::cout << "Written: " << request->output << ", " << sheet.samples.size() << " of "
            << sheet.size << (is_images ? " images\n" : " samples\n");
  if (failed == 0) return 0;
  std::cerr << "lockstep data show: " << failed << " of them cannot be read; the page says why\n";
  return static_cast<int>(ExitCode::kData);
}

}  // namespace lockstep::cli
