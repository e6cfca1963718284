#include <algorithm>
#include <charconv>
#include <iostream>
#include <optional>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "lockstep/cli/data/data_progress.h"
#include "lockstep/cli/data/data_verbs.h"
#include "lockstep/cli/flags/flag_parser.h"
#include "lockstep/core/error.h"
#include "lockstep/data/synthetic/synthetic_set.h"

namespace lockstep::cli {
namespace {

constexpr const char* kDescription =
    R"(Draws a data set in the format of the real one: mnist, fashion-mnist, cifar10, cifar100, images.

The class is a shape, and with more than 10 classes the texture behind it; colours, places and
sizes are drawn at will. A convolutional net learns it in some epochs, a linear model does not.
The same flags give the same pixels on every machine.
)";

constexpr const char* kExamples = R"(Examples:
  lockstep data synthesize cifar100 /tmp/cifar100 --train 5000 --test 1000
  lockstep data synthesize images /tmp/images --classes 20 --train 2000 --test 500
  lockstep data synthesize mnist /tmp/mnist --gzip)";

struct Request {
  DataPlace place;
  data::SyntheticOptions options;
  bool json = false;
};

std::int64_t side_of(const std::string& size, const char* first, const char* end) {
  std::int64_t side = 0;
  const auto [stop, error] = std::from_chars(first, end, side);
  check(
      error == std::errc() && stop == end,
      "data synthesize: --size must be WIDTHxHEIGHT, such as 224x224: ", size);
  return side;
}

ImageSize size_of(const std::string& text) {
  const char* begin = text.data();
  const char* end = begin + text.size();
  const char* cross = begin + std::min(text.find('x'), text.size());
  return {side_of(text, begin, cross), side_of(text, cross == end ? end : cross + 1, end)};
}

/// Reads the command line; nothing if it asked for help, which is then printed.
std::optional<Request> request_of(const std::vector<std::string>& arguments) {
  Request request;
  auto& options = request.options;
  std::string set;
  std::string directory;
  std::optional<std::string> size;
  CLI::App app;
  use_our_layout(app, "Usage: lockstep data synthesize NAME DIR [flags]");
  app.description(kDescription);
  app.footer(kExamples);
  app.add_option("NAME", set, "the set")->required();
  app.add_option("DIR", directory, "folder for its files; is made, or is there and empty");
  app.add_option("--train", options.train)
      ->type_name("N")
      ->description("images to train with [as many as the real set has; images: 2000]");
  app.add_option("--test", options.test)
      ->type_name("N")
      ->description("images to test with, in images the folder val [the real set's; images: 500]");
  app.add_option("--classes", options.classes)
      ->type_name("C")
      ->description("of images: 2 to 100 [20]");
  app.add_option("--size", size)
      ->type_name("WxH")
      ->description("of images: pixels of each [shorter side 160 to 320]");
  app.add_option("--seed", options.seed)->type_name("S")->description("draws another set [0]");
  app.add_flag("--gzip", options.gzip, "of mnist, fashion-mnist: files with .gz");
  app.add_flag("--json", request.json, "print one JSON object");
  app.set_help_flag("-h,--help", "print this");
  if (!parse_flags(app, "data synthesize", arguments)) {
    std::cout << app.help();
    return std::nullopt;
  }
  request.place = data_place("synthesize", set, directory);
  if (size) options.size = size_of(*size);
  return request;
}

void print(const Request& request, const data::SyntheticSummary& summary) {
  std::cout << request.place.directory.string() << ": " << request.place.name << ", "
            << summary.train << " images to train with and " << summary.test << " to test with in "
            << summary.classes << " classes; " << summary.files << " files, " << summary.bytes
            << " bytes\n";
}

void print_json(const Request& request, const data::SyntheticSummary& summary) {
  const nlohmann::ordered_json object{
      {"v", 1},
      {"set", request.place.name},
      {"directory", request.place.directory.string()},
      {"train", summary.train},
      {"test", summary.test},
      {"classes", summary.classes},
      {"seed", request.options.seed},
      {"files", summary.files},
      {"bytes", summary.bytes}};
  std::cout << object.dump() << '\n';
}

}  // namespace

int data_synthesize(const std::vector<std::string>& arguments) {
  auto request = request_of(arguments);
  if (!request) return 0;
  const auto& [name, directory] = request->place;
  check(!directory.empty(), "data synthesize: name the folder for ", name);
  data::SyntheticSummary summary;
  {
    DataProgress progress("synthesize " + name);
    request->options.progress = [&](std::int64_t done, std::int64_t of) {
      progress.show(static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(of));
    };
    summary = data::write_synthetic_set(name, directory, request->options);
  }
  (request->json ? print_json : print)(*request, summary);
  return 0;
}

}  // namespace lockstep::cli
