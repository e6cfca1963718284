#include "dataset.h"

namespace data = lockstep::data;

// Folders of JPEG and PNG files are read in the same way: data::open_image_folders(folder), and
// data::FolderSamples instead of TransformedSamples.
DataSets open_data(const std::string& folder) {
  const auto train = data::cifar100(folder);
  const auto test = data::cifar100(folder, false);
  const lockstep::ImageSize size{train.shape().width, train.shape().height};
  // kTimm draws crops, flips, colours and erasures; kCropFlip crops and flips, kNone nothing. The
  // result depends only on seed, epoch and image: ranks and workers do not change it.
  const auto augmentation = data::augment_options(data::AugmentKind::kTimm, size);
  return {
      std::make_shared<data::TransformedSamples>(train, data::make_train_transform(augmentation)),
      std::make_shared<data::TransformedSamples>(test, data::make_eval_transform(size))};
}
