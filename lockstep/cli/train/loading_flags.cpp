#include "lockstep/cli/train/loading_flags.h"

#include <CLI/CLI.hpp>

namespace lockstep::cli {

void add_loading_flags(CLI::App& app, LoadingTexts& texts) {
  const char* group = "How images are read";
  app.add_option("--augment", texts.augment)
      ->type_name("HOW")
      ->description("of training images: none, crop-flip, timm (RandAugment and more) [none]")
      ->group(group);
  app.add_option("--image-size", texts.settings.image_size)
      ->type_name("N")
      ->description("height and width that the model sees [images 224; others as they are]")
      ->group(group);
  app.add_option("--val-split", texts.settings.val_split)
      ->type_name("X")
      ->description(
          "share of the training set to validate on instead, by the seed [0: the test set]")
      ->group(group);
  app.add_option("--bad-images", texts.bad_images)
      ->type_name("WHAT")
      ->description("fail, or skip: count them and take others instead [fail]")
      ->group(group);
  app.add_option("-j,--workers", texts.workers)
      ->type_name("N")
      ->description(
          "threads of each rank that prepare batches [auto: half of its cores, 0 for one]")
      ->group(group);
}

}  // namespace lockstep::cli
