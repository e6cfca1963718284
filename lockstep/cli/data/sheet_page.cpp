#include "lockstep/cli/data/sheet_page.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/formats/image/png.h"
#include "lockstep/report/plot/text_width.h"

namespace lockstep::cli {
namespace {

using bench::plot::escape_markup;

constexpr const char* kSheetHead = R"(<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<style>
:root { --paper: #ffffff; --ink: #1f2328; --muted: #57606a; --grid: #e1e4e8; --bar: #0072b2; }
@media screen and (prefers-color-scheme: dark) {
  :root { --paper: #15181c; --ink: #e6e8ea; --muted: #a7aeb6; --grid: #31373e; --bar: #56b4e9; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); line-height: 1.5;
  font-family: 'Helvetica Neue', Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif; }
main { max-width: 80rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; }
h1 { font-size: 1.5rem; line-height: 1.2; margin: 0 0 0.5rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2rem 0 0.5rem; }
p { max-width: 45rem; margin: 0.5rem 0; overflow-wrap: anywhere; }
.note, figcaption span { color: var(--muted); font-size: 0.85rem; }
.sheet { display: flex; flex-wrap: wrap; gap: 1rem; }
figure { margin: 0; padding: 0.6rem; border: 1px solid var(--grid); border-radius: 4px; max-width: 100%; }
.looks { display: flex; flex-wrap: wrap; }
img { width: 96px; height: auto; image-rendering: pixelated; display: block; align-self: flex-start;
  margin: 0 4px 4px 0; }
img.large { image-rendering: auto; }
.looks img:first-child:not(:last-child) { margin-right: 12px; outline: 2px solid var(--bar); }
figcaption { max-width: 30rem; margin-top: 0.3rem; overflow-wrap: anywhere; }
figcaption span { display: block; }
.table { overflow-x: auto; margin: 0.5rem 0; }
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.2rem 0.7rem; text-align: left; white-space: nowrap; border-bottom: 1px solid var(--grid); }
.number { text-align: right; }
.bar { display: block; width: 12rem; height: 0.7rem; }
.bar i { display: block; height: 100%; min-width: 1px; background: var(--bar); }
</style>
)";

constexpr std::int64_t kLargeSide = 96;  // above it the browser may smooth

std::string picture(const Image& image, const std::string& what) {
  const bool is_large = std::max(image.size.width, image.size.height) > kLargeSide;
  return concat("<img", is_large ? " class=\"large\"" : "", " width=\"", image.size.width,
      "\" height=\"", image.size.height, "\" title=\"", what, "\" alt=\"", what,
      "\" src=\"data:image/png;base64,", base64(encode_png(image.view())), "\">\n");
}

std::string class_text(const DataSheet& sheet, std::int64_t label) {
  if (sheet.class_names.empty()) return concat("class ", label);
  return escape_markup(printable_path(sheet.class_names.at(static_cast<std::size_t>(label))));
}

// What the set has: of a plugin, what it makes of its samples.
const char* things_of(const SheetRequest& request) {
  return request.options.plugin.empty() ? "images" : "samples";
}

std::string sample_element(const DataSheet& sheet, const SheetSample& sample) {
  std::string looks;
  if (sample.plain) looks += picture(*sample.plain, "as in evaluation");
  for (std::size_t i = 0; i < sample.draws.size(); ++i)
    looks += picture(sample.draws[i], concat("in epoch ", i + 1));
  const std::string failure =
      sample.failure.empty() ? "" : "<p>" + escape_markup(sample.failure) + "</p>\n";
  const std::string label = sample.label ? class_text(sheet, *sample.label) : "no class";
  return "<figure>\n<div class=\"looks\">\n" + looks + "</div>\n" + failure + "<figcaption>" +
         label + "<span>" + concat(sample.index, ": ") +
         escape_markup(printable_path(sample.name)) + "</span></figcaption>\n</figure>\n";
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

// Tensors are numbers alone, which follow.
std::string samples_section(const SheetRequest& request, const DataSheet& sheet) {
  if (std::ranges::none_of(sheet.samples, is_drawn)) return "";
  std::string text = "<h2>" + std::string(request.options.plugin.empty() ? "Images" : "Samples") +
                     "</h2>\n<p class=\"note\">" + explanation(request, sheet) +
                     "</p>\n<div class=\"sheet\">\n";
  for (const SheetSample& sample : sheet.samples)
    if (is_drawn(sample)) text += sample_element(sheet, sample);
  return text + "</div>\n";
}

// A whole number, such as that of a word, has all its digits.
std::string number_text(double number) {
  constexpr double kMostDigits = 1e15;
  const bool is_whole = std::abs(number) < kMostDigits && number == std::trunc(number);
  return is_whole ? concat(static_cast<std::int64_t>(number)) : concat(number);
}

std::string numbers_row(
    const DataSheet& sheet, const SheetSample& sample, const SheetNumbers& numbers) {
  std::vector<std::string> first, sizes;
  std::int64_t count = 1;
  for (const double number : numbers.first) first.push_back(number_text(number));
  for (const std::int64_t size : numbers.shape) {
    sizes.push_back(std::to_string(size));
    count *= size;
  }
  const auto cell = [](double value) {
    return concat("<td class=\"number\">", number_text(value), "</td>");
  };
  return concat("<tr><td class=\"number\">", sample.index, "</td><td>",
      sample.label ? class_text(sheet, *sample.label) : "no class", "</td><td>",
      sheet.inputs.empty() ? "" : escape_markup(printable_path(numbers.input)) + "</td><td>",
      joined(sizes, " x "), "</td>", cell(numbers.least), cell(numbers.mean), cell(numbers.most),
      "<td>", joined(first), count > std::ssize(first) ? ", ..." : "", "</td></tr>\n");
}

std::string note_on_numbers(const SheetRequest& request, const DataSheet& sheet) {
  const bool has_spread = std::ranges::any_of(sheet.samples,
      [](const SheetSample& sample) { return !sample.numbers.empty() && sample.plain; });
  const bool is_first = std::ranges::none_of(sheet.samples, is_drawn);
  return concat(is_first ? explanation(request, sheet) + " " : "",
      sheet.inputs.empty() ? "Shapes are channels x height x width." : "A row for each input.",
      has_spread ? " Numbers outside 0 to 1 are spread from black to white above." : "");
}

// Of the samples that are no pictures, of pictures that are spread out, and of inputs.
std::string numbers_section(const SheetRequest& request, const DataSheet& sheet) {
  std::string rows;
  for (const SheetSample& sample : sheet.samples)
    for (const SheetNumbers& numbers : sample.numbers) rows += numbers_row(sheet, sample, numbers);
  if (rows.empty()) return "";
  return concat("<h2>Numbers</h2>\n<p class=\"note\">", note_on_numbers(request, sheet),
             "</p>\n<div class=\"table\" tabindex=\"0\">\n<table id=\"numbers\">\n",
             "<tr><th class=\"number\">sample</th><th>class</th>",
             sheet.inputs.empty() ? "" : "<th>input</th>", "<th>shape</th>",
             "<th class=\"number\">min</th><th class=\"number\">mean</th>",
             "<th class=\"number\">max</th><th>the first of them",
             sheet.inputs.empty() ? ", channels together" : "", "</th></tr>\n") +
         rows + "</table>\n</div>\n";
}

std::string classes_section(const SheetRequest& request, const DataSheet& sheet) {
  std::string rows;
  const std::int64_t most = std::max<std::int64_t>(1, *std::ranges::max_element(sheet.per_class));
  for (std::int64_t label = 0; label < std::ssize(sheet.per_class); ++label) {
    const std::int64_t count = sheet.per_class[static_cast<std::size_t>(label)];
    rows += concat("<tr><td class=\"number\">", label, "</td><td>", class_text(sheet, label),
        "</td><td class=\"number\">", count,
        "</td><td><span class=\"bar\"><i style=\"width: ", 100 * count / most,
        "%\"></i></span></td></tr>\n");
  }
  return "<h2>Classes</h2>\n<div class=\"table\" tabindex=\"0\">\n<table id=\"classes\">\n"
         "<tr><th class=\"number\">number</th><th>class</th><th class=\"number\">" +
         std::string(things_of(request)) + "</th><th></th></tr>\n" + rows + "</table>\n</div>\n";
}

std::string share_row(const SheetShare& share, std::size_t rank) {
  std::vector<std::string> first;
  for (const std::int64_t index : share.first) first.push_back(std::to_string(index));
  const bool has_more = share.samples > std::ssize(share.first);
  return concat("<tr><td class=\"number\">", rank, "</td><td class=\"number\">", share.samples,
      "</td><td class=\"number\">", share.repeated ? std::to_string(*share.repeated) : "",
      "</td><td>", joined(first), has_more ? ", ..." : "", "</td></tr>\n");
}

std::string shares_section(const SheetRequest& request, const DataSheet& sheet) {
  std::string rows;
  for (std::size_t rank = 0; rank < sheet.shares.size(); ++rank)
    rows += share_row(sheet.shares[rank], rank);
  const bool is_train = request.part == SheetPart::kTrain;
  const std::string note =
      is_train ? "Of the first epoch. Where they cannot be dealt out evenly, the last ranks repeat "
                 "one that another rank has, so that all make as many steps."
               : "In every evaluation. None is there twice, so ranks may differ by one.";
  return concat("<h2>Shares of ", sheet.shares.size(), " ranks</h2>\n<p class=\"note\">", note,
             "</p>\n<div class=\"table\" tabindex=\"0\">\n<table id=\"shares\">\n",
             "<tr><th class=\"number\">rank</th><th class=\"number\">", things_of(request), "</th>",
             "<th class=\"number\">repeated</th><th>the first of them</th></tr>\n") +
         rows + "</table>\n</div>\n";
}

std::string title_of(const SheetRequest& request) {
  const DataSource& data = request.options.data;
  const std::string place = data.directory.empty() ? "" : ":" + printable_path(data.directory);
  return escape_markup(concat(data.name, place, ", ", name_of(request.part)));
}

std::string facts_of_set(const SheetRequest& request, const DataSheet& sheet) {
  const TrainOptions& options = request.options;
  const auto [channels, height, width] = sheet.shape;
  const std::string what = concat("<p>", sheet.size, " ", things_of(request), " in ",
      sheet.per_class.size(), sheet.per_class.size() == 1 ? " class, " : " classes, ");
  if (!sheet.inputs.empty())
    return what + escape_markup(printable_path(joined(sheet.inputs))) +
           concat(" as a model sees them; seed ", options.seed, ".</p>\n");
  if (!options.plugin.empty())
    return what + concat(channels, " x ", height, " x ", width,
                      " numbers as a model sees them; seed ", options.seed, ".</p>\n");
  return what + concat(width, " x ", height, " pixels as a model sees them; augmentation ",
                    name_of(options.loading.augment), ", seed ", options.seed, ".</p>\n");
}

}  // namespace

std::string sheet_page(const SheetRequest& request, const DataSheet& sheet) {
  const std::string title = title_of(request);
  return "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n" + std::string(kSheetHead) + "<title>" +
         title + "</title>\n</head>\n<body>\n<main>\n<h1>" + title + "</h1>\n" +
         facts_of_set(request, sheet) + samples_section(request, sheet) +
         numbers_section(request, sheet) + classes_section(request, sheet) +
         shares_section(request, sheet) + "</main>\n</body>\n</html>\n";
}

}  // namespace lockstep::cli
