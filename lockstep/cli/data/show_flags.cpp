#include "lockstep/cli/data/show_flags.h"

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "lockstep/cli/data/data_verbs.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/flags/flag_table.h"
#include "lockstep/nn/models/catalogue.h"

namespace lockstep::cli {
namespace {

constexpr const char* kShowDescription =
    R"(Makes one HTML file to look at a data set before training on it: images with their classes, what
the augmentation makes of each of them, how many images each class has, and which of them each rank
gets. All of it by the code and the seed of lockstep train, whose flags these are.

The sets are mnist, fashion-mnist, cifar10, cifar100, mock, images, a folder of class folders, and those
of --plugin, whose samples may be no pictures: the page then has a table of their numbers.
)";

constexpr const char* kShowExamples = R"(Examples:
  lockstep data show fashion-mnist --output clothes.html
  lockstep data show cifar100 /data/cifar100 --augment crop-flip --count 32 --output cifar.html
  lockstep data show images:/data/flowers --augment timm --ranks 4 --output flowers.html

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
          flag("--image-size", "N", "height and width that the model sees", &R::sheet, kOptions,
              loading, &Set::image_size)
              .from(1)
              .to(16384)
              .usually("images 224; others as they are"),
          flag("--val-split", "X", "share of the training set that becomes --split val, or test",
              &R::sheet, kOptions, loading, &Set::val_split)
              .from(0)
              .below(1),
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
          flag("--count", "N", "images to show", &R::sheet, &Sheet::samples).from(1).to(1000),
          flag("--draws", "N", "draws of the augmentation for each, in epochs from the first on",
              &R::sheet, &Sheet::draws)
              .from(1)
              .to(32),
          flag("--ranks", "N", "replicas that share the images", &R::sheet, &Sheet::ranks)
              .from(1)
              .to(256)}};
}

DataSource checked_source(const R& request) {
  static const std::vector<std::string> kSets{
      "mnist", "fashion-mnist", "cifar10", "cifar100", "mock", "images"};
  const DataPlace place = data_place("show", request.set, request.directory);
  const bool is_ours = std::ranges::find(kSets, place.name) != kSets.end();
  check(is_ours || !request.sheet.options.plugin.empty(), "data show: there is no set ", place.name,
      did_you_mean(place.name, kSets), " (the sets are ", joined(kSets), " and those of --plugin)");
  const bool needs_folder = is_ours && place.name != "mock" && place.name != "fashion-mnist";
  check(!needs_folder || !place.directory.empty(), "data show: name the folder of ", place.name,
      ": ", place.name, ":DIR");
  return {.name = place.name,
      .directory = place.directory.string(),
      .classes = request.sheet.options.data.classes};
}

}  // namespace

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

}  // namespace lockstep::cli
