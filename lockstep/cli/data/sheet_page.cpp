#include "lockstep/cli/data/sheet_page.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/formats/image/png.h"
#include "lockstep/report/page/page.h"

namespace lockstep::cli {
namespace {

using page::Picture;
using page::Section;
using page::Table;

Picture::Look look_at(const Image& image, const std::string& what) {
  constexpr std::int64_t kLargeSide = 136;  // as wide as the page shows it
  return {.png = encode_png(image.view()),
      .text = what,
      .is_large = std::max(image.size.width, image.size.height) > kLargeSide};
}

std::string class_text(const DataSheet& sheet, const std::optional<std::int64_t>& label) {
  if (!label) return "no class";
  const std::string name =
      sheet.class_names.empty() ? "" : sheet.class_names.at(static_cast<std::size_t>(*label));
  const bool is_blank = name.find_first_not_of(' ') == std::string::npos;
  return is_blank ? concat("class ", *label) : printable_path(name);
}

// Otherwise they are what a plugin makes of them, or rows of tensors.
bool are_images(const TrainOptions& options) {
  return options.plugin.empty() && !is_tensor_set(options.data.name);
}

const char* things_of(const SheetRequest& request) {
  return are_images(request.options) ? "images" : "samples";
}

Picture picture_of(const DataSheet& sheet, const SheetSample& sample) {
  Picture picture{.caption = {concat(sample.index, ": ", printable_path(sample.name))}};
  if (!sheet.per_class.empty())
    picture.caption.insert(picture.caption.begin(), class_text(sheet, sample.label));
  if (sample.plain) picture.looks.push_back(look_at(*sample.plain, "as in evaluation"));
  for (std::size_t i = 0; i < sample.draws.size(); ++i)
    picture.looks.push_back(look_at(sample.draws[i], concat("in epoch ", i + 1)));
  if (!sample.failure.empty()) picture.caption.push_back(sample.failure);
  return picture;
}

std::string explanation(const SheetRequest& request, const DataSheet& sheet) {
  if (request.part != SheetPart::kTrain)
    return concat(sheet.samples.size(), " ", things_of(request),
        ", evenly over the part, as evaluation sees them.");
  const bool is_changed = request.options.loading.augment != Augment::kNone;
  return concat("The first ", sheet.samples.size(), " ", things_of(request),
      " of the first epoch with this seed. ",
      is_changed ? concat("In a frame: as evaluation sees it; beside it: as training does, in "
                          "epochs 1 to ",
                       request.draws, ".")
                 : std::string("Training sees them as they are here."));
}

bool is_drawn(const SheetSample& sample) { return sample.plain || !sample.failure.empty(); }

Section samples_section(const SheetRequest& request, const DataSheet& sheet) {
  Section section{.title = are_images(request.options) ? "Images" : "Samples",
      .question = explanation(request, sheet)};
  for (const SheetSample& sample : sheet.samples)
    if (is_drawn(sample)) section.pictures.push_back(picture_of(sheet, sample));
  return section;
}

// A whole number, such as that of a word, has all its digits.
std::string number_text(double number) {
  constexpr double kMostDigits = 1e15;
  const bool is_whole = std::abs(number) < kMostDigits && number == std::trunc(number);
  return is_whole ? concat(static_cast<std::int64_t>(number)) : concat(number);
}

std::vector<std::string> numbers_row(
    const DataSheet& sheet, const SheetSample& sample, const SheetNumbers& numbers) {
  std::vector<std::string> first, sizes;
  std::int64_t count = 1;
  for (const double number : numbers.first) first.push_back(number_text(number));
  for (const std::int64_t size : numbers.shape) {
    sizes.push_back(std::to_string(size));
    count *= size;
  }
  std::vector<std::string> row{std::to_string(sample.index)};
  if (!sheet.per_class.empty()) row.push_back(class_text(sheet, sample.label));
  if (!sheet.inputs.empty()) row.push_back(printable_path(numbers.tensor));
  for (const std::string& cell : {sizes.empty() ? "-" : joined(sizes, " x "),
           number_text(numbers.least), number_text(numbers.mean), number_text(numbers.most),
           (first.empty() ? "-" : joined(first)) + (count > std::ssize(first) ? ", ..." : "")})
    row.push_back(cell);
  return row;
}

// Of the samples that are no pictures, of pictures that are spread out, and of inputs.
Section numbers_section(const SheetRequest& request, const DataSheet& sheet) {
  const bool has_inputs = !sheet.inputs.empty();
  Table table{.id = "numbers", .columns = {{"sample"}}};
  if (!sheet.per_class.empty()) table.columns.push_back({"class", true});
  if (has_inputs) table.columns.push_back({sheet.targets.empty() ? "input" : "tensor", true});
  for (const page::Column& column : {page::Column{"shape", true}, {"min"}, {"mean"}, {"max"},
           {has_inputs ? "the first of them" : "the first of them, channels together", true}})
    table.columns.push_back(column);
  for (const SheetSample& sample : sheet.samples)
    for (const SheetNumbers& numbers : sample.numbers)
      table.rows.push_back(numbers_row(sheet, sample, numbers));
  const bool has_spread = std::ranges::any_of(sheet.samples,
      [](const SheetSample& sample) { return !sample.numbers.empty() && sample.plain; });
  const bool is_first = std::ranges::none_of(sheet.samples, is_drawn);
  return {.title = "Numbers",
      .question = concat(is_first ? explanation(request, sheet) + " " : "",
          !sheet.targets.empty() ? "A row for each input and target."
          : has_inputs           ? "A row for each input."
                                 : "Shapes are channels x height x width.",
          has_spread ? " Numbers outside 0 to 1 are spread from black to white above." : ""),
      .tables = {std::move(table)}};
}

Section classes_section(const SheetRequest& request, const DataSheet& sheet) {
  Table table{.id = "classes",
      .columns = {{"number"}, {"class", true}, {things_of(request)}, {.head = "", .is_bar = true}}};
  const std::int64_t most = std::max<std::int64_t>(1, *std::ranges::max_element(sheet.per_class));
  for (const std::int64_t count : sheet.per_class) {
    const std::int64_t label = std::ssize(table.rows);
    table.rows.push_back({std::to_string(label), class_text(sheet, label), std::to_string(count),
        std::to_string(100 * count / most)});
  }
  return {.title = "Classes", .question = "", .tables = {std::move(table)}};
}

Section shares_section(const SheetRequest& request, const DataSheet& sheet) {
  Table table{.id = "shares",
      .columns = {{"rank"}, {things_of(request)}, {"repeated"}, {"the first of them", true}}};
  for (const SheetShare& share : sheet.shares) {
    std::vector<std::string> first;
    for (const std::int64_t index : share.first) first.push_back(std::to_string(index));
    if (share.samples > std::ssize(share.first)) first.emplace_back("...");
    table.rows.push_back({std::to_string(table.rows.size()), std::to_string(share.samples),
        share.repeated ? std::to_string(*share.repeated) : "-",
        first.empty() ? "-" : joined(first)});
  }
  return {.title = concat("Shares of ", sheet.shares.size(), " ranks"),
      .question =
          request.part == SheetPart::kTrain
              ? "Of the first epoch. Where they cannot be dealt out evenly, the last ranks repeat "
                "one that another rank has, so that all make as many steps."
              : "In every evaluation. None is there twice, so ranks may differ by one.",
      .tables = {std::move(table)}};
}

std::string title_of(const SheetRequest& request) {
  const DataSource& data = request.options.data;
  const std::string place = data.directory.empty() ? "" : ":" + printable_path(data.directory);
  return concat(data.name, place, ", ", name_of(request.part));
}

std::string facts_of_set(const SheetRequest& request, const DataSheet& sheet) {
  const TrainOptions& options = request.options;
  const auto [channels, height, width] = sheet.shape;
  const std::string in_classes =
      concat(" in ", sheet.per_class.size(), sheet.per_class.size() == 1 ? " class" : " classes");
  const std::string what =
      concat(sheet.size, " ", things_of(request), sheet.per_class.empty() ? "" : in_classes, ", ");
  if (!sheet.inputs.empty())
    return concat(what, printable_path(joined(sheet.inputs)), " as a model sees them",
        sheet.targets.empty() ? "" : ", to learn ", printable_path(joined(sheet.targets)),
        "; seed ", options.seed, ".", sheet.remark.empty() ? "" : " Note: ", sheet.remark);
  if (!options.plugin.empty())
    return concat(what, channels, " x ", height, " x ", width,
        " numbers as a model sees them; seed ", options.seed, ".");
  return concat(what, width, " x ", height, " pixels as a model sees them; augmentation ",
      name_of(options.loading.augment), ", seed ", options.seed, ".");
}

}  // namespace

std::string sheet_page(const SheetRequest& request, const DataSheet& sheet) {
  page::Page page{
      .title = title_of(request), .sections = {}, .summary = facts_of_set(request, sheet)};
  // Tensors are numbers alone.
  if (std::ranges::any_of(sheet.samples, is_drawn))
    page.sections.push_back(samples_section(request, sheet));
  if (std::ranges::any_of(
          sheet.samples, [](const SheetSample& sample) { return !sample.numbers.empty(); }))
    page.sections.push_back(numbers_section(request, sheet));
  if (!sheet.per_class.empty()) page.sections.push_back(classes_section(request, sheet));
  page.sections.push_back(shares_section(request, sheet));
  return to_html(page);
}

}  // namespace lockstep::cli
