#include "lockstep/cli/data/sheet_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>
#include <sstream>

#include "tests/support/data_uris.h"

#include "lockstep/cli/data/data.h"
#include "lockstep/formats/image/image_reader.h"

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Image picture(std::int64_t channels, ImageSize size, std::uint8_t first) {
  Image image = Image::of_size(size, channels);
  std::iota(image.pixels.begin(), image.pixels.end(), first);
  return image;
}

DataSheet small_sheet() {
  DataSheet sheet{.size = 5,
      .shape = {3, 3, 4},
      .class_names = {"<cat>", "do\xff"},
      .per_class = {4, 1},
      .samples = {},
      .shares = {
          {.samples = 3, .first = {4, 2, 0}}, {.samples = 3, .first = {3, 1, 4}, .repeated = 4}}};
  sheet.samples.push_back({.index = 4,
      .name = "a&b.png",
      .label = 0,
      .plain = picture(3, {4, 3}, 0),
      .draws = {picture(3, {4, 3}, 40), picture(3, {4, 3}, 80)}});
  sheet.samples.push_back(
      {.index = 1, .name = "grey.png", .label = 1, .plain = picture(1, {5, 1}, 7)});
  sheet.samples.push_back({.index = 2, .name = "bad.png", .failure = "bad.png: it is <html>"});
  return sheet;
}

std::string page_of_sheet(SheetRequest request = {}) {
  request.options.data = {"images", "/data/<x>"};
  return sheet_page(request, small_sheet());
}

TEST(SheetPage, HasEveryPictureWithItsVeryPixels) {
  const auto pictures = testing::data_uris(page_of_sheet());
  ASSERT_EQ(pictures.size(), 4U);
  const auto decoded = [&](std::size_t i) { return decode_image(pictures[i], "page").pixels; };
  EXPECT_EQ(decoded(0), picture(3, {4, 3}, 0).pixels);
  EXPECT_EQ(decoded(1), picture(3, {4, 3}, 40).pixels);
  EXPECT_EQ(decoded(2), picture(3, {4, 3}, 80).pixels);
  std::vector<std::uint8_t> grey;  // which comes as RGB
  for (const std::uint8_t level : picture(1, {5, 1}, 7).pixels) grey.insert(grey.end(), 3, level);
  EXPECT_EQ(decoded(3), grey);
}

TEST(SheetPage, EscapesWhatComesFromOutside) {
  const std::string page = page_of_sheet();
  for (const char* text : {"&lt;cat&gt;", "do\\xff", "a&amp;b.png", "it is &lt;html&gt;",
           "images:/data/&lt;x&gt;, train"})
    EXPECT_THAT(page, HasSubstr(text));
  for (const char* text : {"<cat>", "<x>", "<script", "http://", "https://"})
    EXPECT_THAT(page, Not(HasSubstr(text)));
  EXPECT_THAT(page, Not(HasSubstr("<h2>Numbers</h2>"))) << "these are pixels";
}

TEST(SheetPage, CountsClassesAndShares) {
  const std::string page = page_of_sheet();
  EXPECT_THAT(page, HasSubstr("<td class=\"text\">&lt;cat&gt;</td><td>4</td>"));
  EXPECT_THAT(page, HasSubstr("<td>1</td><td>3</td><td>4</td><td class=\"text\">3, 1, 4</td>"));
}

TEST(SheetPage, ListsNumbersThatAreNoPixels) {
  SheetRequest request;
  request.options.plugin = "nets.so";
  request.options.data = {"text", ""};
  DataSheet sheet = small_sheet();
  sheet.shape = {2, 1, 2};
  sheet.samples = {{.index = 7,
      .label = 1,
      .numbers = {
          {.shape = {2, 1, 2}, .least = -1.5, .mean = 0.25, .most = 2, .first = {-1.5, 2}}}}};
  const std::string page = sheet_page(request, sheet);
  EXPECT_THAT(page, HasSubstr("5 samples in 2 classes, 2 x 1 x 2 numbers as a model sees them"));
  EXPECT_THAT(
      page, HasSubstr("<td>7</td><td class=\"text\">do\\xff</td><td class=\"text\">2 x 1 x 2</td>"
                      "<td>-1.5</td><td>0.25</td><td>2</td><td class=\"text\">-1.5, 2, ...</td>"));
  EXPECT_THAT(page, Not(HasSubstr("<figure")));
  EXPECT_THAT(page, Not(HasSubstr("spread")));
  EXPECT_THAT(page, Not(HasSubstr("<h2>Samples</h2>"))) << "nothing would be below it";
  EXPECT_THAT(
      page, HasSubstr("<h2>Numbers</h2>\n<p class=\"question\">The first 1 samples of the "));
  sheet.samples.front().plain = picture(3, {4, 3}, 0);
  const std::string spread = sheet_page(request, sheet);
  EXPECT_THAT(spread, HasSubstr("spread from black to white"));
  EXPECT_EQ(testing::data_uris(spread).size(), 1U);
}

TEST(SheetPage, OfTensorsWithoutClassesHasNone) {
  SheetRequest request;
  request.options.data.name = "tensors";
  request.options.data.directory = "a.npz";
  DataSheet sheet = small_sheet();
  sheet.inputs = {"x [3] float"};
  sheet.targets = {"y [] float"};
  sheet.class_names = {};
  sheet.per_class = {};
  sheet.remark = "\"z\" is float64";
  sheet.samples = {{.index = 7,
      .numbers = {{.tensor = "x", .shape = {3}, .most = 2, .first = {0, 1, 2}},
          {.tensor = "y", .least = 5, .mean = 5, .most = 5, .first = {5}}}}};
  const std::string page = sheet_page(request, sheet);
  EXPECT_THAT(
      page, HasSubstr("5 samples, x [3] float as a model sees them, to learn y [] float; "));
  EXPECT_THAT(page, HasSubstr("Note: &quot;z&quot; is float64"));
  EXPECT_THAT(page, HasSubstr("A row for each input and target."));
  EXPECT_THAT(page, HasSubstr("<td>7</td><td class=\"text\">y</td><td class=\"text\">-</td>"));
  EXPECT_THAT(page, Not(HasSubstr("Classes")));
  EXPECT_THAT(page, Not(HasSubstr("class, ")));
  EXPECT_THAT(page, Not(HasSubstr("no class")));
}

TEST(DataReport, OfTensorsHasALineForEach) {
  data::SetReport report{.set = "tensors", .directory = "a.npz"};
  report.parts = {{.name = "train",
                      .images = 3,
                      .per_class = {1, 2},
                      .tensors = {{.name = "x", .type = "float32", .sizes = {2, 3}, .most = 4},
                          {.name = "y", .is_target = true, .type = "int64", .most = 1}}},
      {.name = "test", .images = 2, .per_class = {}}};
  report.remarks = {"it is float64"};
  std::ostringstream text;
  print_report(text, report);
  EXPECT_THAT(text.str(), HasSubstr("3 samples in 2 classes, 1 to 2 in each\n"));
  EXPECT_THAT(text.str(), HasSubstr("input   x                    float32, 2 x 3, 0 to 4, mean 0"));
  EXPECT_THAT(text.str(), HasSubstr("target  y                    int64, one number, 0 to 1"));
  EXPECT_THAT(text.str(), HasSubstr("2 samples\n"));
  EXPECT_THAT(text.str(), HasSubstr("  it is float64\n"));
}

TEST(DataReport, SetsNamesByTheirLettersAndNamesWhatIsIgnored) {
  data::SetReport report{.set = "images", .directory = "birds"};
  report.parts = {{.name = "all", .images = 3, .per_class = {1, 2}}};
  report.class_names = {"Blaukehlchen", "Grünfink"};
  report.files.emplace();
  report.files->other = {.count = 3, .endings = {{".jfif", 1}, {".webp", 2}}};
  std::ostringstream text;
  print_report(text, report);
  EXPECT_THAT(text.str(), HasSubstr("Blaukehlchen                 all 1\n"));
  EXPECT_THAT(text.str(), HasSubstr("Grünfink                     all 2\n"));
  EXPECT_THAT(text.str(), HasSubstr("3 other files, ignored: 2 .webp, 1 .jfif\n"));
}

TEST(DataReport, CountsOneClassAsOne) {
  data::SetReport report{.set = "images", .directory = "birds"};
  report.parts = {{.name = "all", .images = 3, .per_class = {3}}};
  report.class_names = {"Blaukehlchen"};
  std::ostringstream text;
  print_report(text, report);
  EXPECT_THAT(text.str(), HasSubstr(" 3 images in 1 class, 3 in each\n"));
  DataSheet sheet = small_sheet();
  sheet.class_names = {"<cat>"};
  sheet.per_class = {5};
  sheet.samples.resize(1);
  EXPECT_THAT(sheet_page({}, sheet), HasSubstr(" in 1 class, "));
}

TEST(SheetPage, SaysHowItsImagesWereChosenAndChanged) {
  SheetRequest request;
  EXPECT_THAT(page_of_sheet(request), HasSubstr("Training sees them as they are here."));
  request.options.loading.augment = Augment::kTimm;
  EXPECT_THAT(page_of_sheet(request), HasSubstr("in epochs 1 to 4."));
  request.part = SheetPart::kTest;
  EXPECT_THAT(page_of_sheet(request), HasSubstr("evenly over the part"));
}

}  // namespace
}  // namespace lockstep::cli
