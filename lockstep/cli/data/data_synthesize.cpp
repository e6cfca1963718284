#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench/synthetic/synthetic_set.h"
#include "lockstep/cli/data/data_progress.h"
#include "lockstep/cli/data/data_verbs.h"
#include "lockstep/core/error.h"
#include "lockstep/flags/flag_table.h"

namespace lockstep::cli {
namespace {

constexpr const char* kSynthesizeDescription =
    R"(Draws a data set in the format of the real one: mnist, fashion-mnist, cifar10, cifar100, images.

The class is a shape, and with more than 10 classes the texture behind it; colours, places and
sizes are drawn at will. A convolutional net learns it in some epochs, a linear model does not.
The same flags give the same pixels on every machine.
)";

constexpr const char* kSynthesizeExamples = R"(Examples:
  lockstep data synthesize cifar100 /tmp/cifar100 --train 5000 --test 1000
  lockstep data synthesize images /tmp/images --classes 20 --train 2000 --test 500
  lockstep data synthesize mnist /tmp/mnist --gzip)";

struct SynthesizeRequest {
  std::string set, directory;
  DataPlace place;
  data::SyntheticOptions options;
  bool json = false;
};

void read_size(SynthesizeRequest& request, const FlagSpec& flag, const std::string& text) {
  const auto sides = split(text, 'x');
  const auto width = parse_number<std::int64_t>(sides.front());
  const auto height = parse_number<std::int64_t>(sides.back());
  check(sides.size() == 2 && width && height, flag.verb, ": ", flag.name,
      " must be WIDTHxHEIGHT, such as 224x224: ", text);
  request.options.size = ImageSize{*width, *height};
}

/// Reads the command line; nothing if it asked for help, which is then printed.
std::optional<SynthesizeRequest> synthesize_request(const std::vector<std::string>& arguments) {
  using R = SynthesizeRequest;
  using Set = data::SyntheticOptions;
  const FlagTable<R> table({.verb = "data synthesize",
                               .usage = "lockstep data synthesize NAME DIR [flags]",
                               .description = kSynthesizeDescription,
                               .footer = kSynthesizeExamples},
      {{"Arguments", {flag("NAME", "", "the set", &R::set).required(),
                         flag("DIR", "", "folder for its files; created if missing, else empty",
                             &R::directory)}},
          {"Options", {flag("--train", "N", "images to train with", &R::options, &Set::train)
                              .usually("as many as the real set has; images: 2000"),
                          flag("--test", "N", "images to test with, in images the folder val",
                              &R::options, &Set::test)
                              .usually("the real set's; images: 500"),
                          flag("--classes", "C", "of images: 2 to 100", &R::options, &Set::classes)
                              .usually(20),
                          flag_by<R>("--size", "WxH", "of images: pixels of each", read_size)
                              .usually("shorter side 160 to 320"),
                          flag("--seed", "S", "draws another set", &R::options, &Set::seed),
                          flag_on("--gzip", "of mnist, fashion-mnist: files with .gz", &R::options,
                              &Set::gzip),
                          flag_on("--json", "print one JSON object", &R::json)}}});
  auto request = table.request(arguments, std::cout);
  if (request) request->place = data_place("synthesize", request->set, request->directory);
  return request;
}

void print_synthesize(const SynthesizeRequest& request, const data::SyntheticSummary& summary) {
  std::cout << request.place.directory.string() << ": " << request.place.name << ", "
            << summary.train << " images to train with and " << summary.test << " to test with in "
            << summary.classes << " classes; " << summary.files << " files, " << summary.bytes
            << " bytes\n";
}

void print_synthesize_json(
    const SynthesizeRequest& request, const data::SyntheticSummary& summary) {
  const nlohmann::ordered_json object{{"v", 1}, {"set", request.place.name},
      {"directory", request.place.directory.string()}, {"train", summary.train},
      {"test", summary.test}, {"classes", summary.classes}, {"seed", request.options.seed},
      {"files", summary.files}, {"bytes", summary.bytes}};
  std::cout << object.dump() << '\n';
}

}  // namespace

int data_synthesize(const std::vector<std::string>& arguments) {
  auto request = synthesize_request(arguments);
  if (!request) return 0;
  const auto& [name, directory] = request->place;
  check_has_folder("synthesize", request->place);
  data::SyntheticSummary summary;
  {
    DataProgress progress("synthesize " + name);
    request->options.progress = [&](std::int64_t done, std::int64_t of) {
      progress.show(static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(of));
    };
    summary = data::write_synthetic_set(name, directory, request->options);
  }
  (request->json ? print_synthesize_json : print_synthesize)(*request, summary);
  return 0;
}

}  // namespace lockstep::cli
