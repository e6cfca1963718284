#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/core/enum_names.h"
#include "lockstep/formats/image/image.h"
#include "lockstep/train/options/options.h"

namespace lockstep {

namespace data {
class Samples;
struct Normalization;
}  // namespace data

/// The shape and range of the numbers of a sample, or of one of its inputs and targets, for a
/// contact sheet.
struct SheetNumbers {
  std::string tensor = {};               ///< its name, where the set names them
  std::vector<std::int64_t> shape = {};  ///< channels, height, width, or as the set says
  double least = 0, mean = 0, most = 0;  ///< not a number where one of them is none
  std::vector<double> first = {};        ///< a few, channels together, or row by row
};

/// Returns whether samples of this shape (channels, height, width) can be looked at: grey or in
/// colour, and more than a line.
bool is_pictured(const std::vector<std::int64_t>& shape);

/// Looks at numbers, of which there is at least one.
SheetNumbers numbers_of_sample(
    std::span<const double> numbers, const std::vector<std::int64_t>& shape);

/// Spreads numbers that no pixels from 0 to 1 gave from black to white; returns whether it did.
bool spread_beyond_pixels(std::span<float> numbers);

/// Returns a sample as a PNG file: the image that the model sees, before its numbers were
/// normalized.
///
/// Three channels are colours; of any other number the first is shown, in grey. Numbers that no
/// pixels gave, as a plugin's may be, are spread from black to white. Sides above 256 pixels are
/// scaled down. Of a set that names its inputs it is the first that is_pictured(); nothing where
/// none is.
std::vector<std::uint8_t> sample_picture(
    const data::Samples& set, std::int64_t index, const data::Normalization& normalization);

/// The parts of a set that a run uses.
enum class SheetPart { kTrain, kValidation, kTest };
constexpr auto names_of(SheetPart) {
  return std::array{EnumName{SheetPart::kTrain, "train"}, EnumName{SheetPart::kValidation, "val"},
      EnumName{SheetPart::kTest, "test"}};
}

/// The request for a contact sheet of a data set.
struct SheetRequest {
  TrainOptions options = {};  ///< data, model, loading and seed count
  SheetPart part = SheetPart::kTrain;
  int samples = 16;
  int draws = 4;  ///< of the augmentation, for each sample
  int ranks = 2;
};

/// One sample as models see it.
struct SheetSample {
  std::int64_t index = 0;  ///< in its part
  std::string name;
  std::optional<std::int64_t> label = {};
  std::optional<Image> plain = {};  ///< as evaluation sees it
  std::vector<Image> draws = {};    ///< as training sees it, in epochs from the first on
  /// Where they are no pixels: the sample has no picture, or one that spreads them out. Of a set
  /// that names its inputs, those of each, and of each target that is no class.
  std::vector<SheetNumbers> numbers = {};
  std::string failure = {};  ///< why it cannot be read
};

/// The share of one rank in an epoch.
struct SheetShare {
  std::int64_t samples = 0;
  std::vector<std::int64_t> first = {};       ///< indices
  std::optional<std::int64_t> repeated = {};  ///< the index of a sample that another rank has too
};

/// The content of a contact sheet.
struct DataSheet {
  std::int64_t size = 0;
  std::array<std::int64_t, 3> shape = {};  ///< channels, height, width as models see them
  std::vector<std::string> inputs = {};    ///< where the set names them: name, shape and type
  std::vector<std::string> targets = {};   ///< the same, where they are no classes
  std::vector<std::string> class_names;    ///< empty: classes have numbers alone
  std::vector<std::int64_t> per_class;     ///< empty: there are no classes
  std::string remark = {};                 ///< on what is not read, or not as it lies there
  std::vector<SheetSample> samples;
  std::vector<SheetShare> shares;  ///< by rank
};

/// Looks at a data set by what training reads it with: the same images, draws and shares. Of a
/// training part the samples are the first of the first epoch, of others they lie evenly over the
/// part. Throws as load_datasets() does; a sample that cannot be read is no error.
DataSheet make_data_sheet(const SheetRequest& request);

}  // namespace lockstep
