#include <algorithm>
#include <iostream>
#include <optional>
#include <thread>

#include <CLI/CLI.hpp>

#include "lockstep/cli/data/data_progress.h"
#include "lockstep/cli/data/data_report.h"
#include "lockstep/cli/data/data_verbs.h"
#include "lockstep/cli/flags/flag_parser.h"
#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/data/image_sets.h"
#include "lockstep/formats/output_file.h"

namespace lockstep::cli {
namespace {

constexpr const char* kDescription =
    R"(Reads every file of a data set, as training would, and says what it holds.

The sets are mnist, fashion-mnist, cifar10, cifar100 and images, a folder of class folders with
JPEG and PNG files, perhaps in train, val and test. Every image is decoded.
)";

constexpr const char* kExamples = R"(Examples:
  lockstep data check cifar10 /data/cifar10
  lockstep data check images:/data/flowers --workers 4 --bad-list bad.txt
  lockstep data check fashion-mnist --json

Exit codes: 0 all files are good, 2 bad flags, 3 some are bad, 4 no permission or disk.)";

struct Request {
  DataPlace place;
  std::string bad_list;
  int workers = 0;
  bool json = false;
};

/// Reads the command line; nothing if it asked for help, which is then printed.
std::optional<Request> request_of(const std::vector<std::string>& arguments) {
  Request request;
  request.workers = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  std::string set;
  std::string directory;
  CLI::App app;
  use_our_layout(app, "Usage: lockstep data check NAME DIR [flags]");
  app.description(kDescription);
  app.footer(kExamples);
  app.add_option("NAME", set, "the set, or NAME:DIR")->required();
  app.add_option("DIR", directory, "folder of its files");
  app.add_option("--workers", request.workers)
      ->type_name("N")
      ->description("threads that decode images [as many as cores]");
  app.add_option("--bad-list", request.bad_list)
      ->type_name("FILE")
      ->description("write the bad files there: name, tab, reason; a new file");
  app.add_flag("--json", request.json, "print one JSON object");
  app.set_help_flag("-h,--help", "print this");
  if (!parse_flags(app, "data check", arguments)) {
    std::cout << app.help();
    return std::nullopt;
  }
  request.place = data_place("check", set, directory);
  auto& place = request.place;
  if (place.directory.empty() && place.name == "fashion-mnist") {
    place.directory = data::kFashionMnistDirectory;
  }
  check(!place.directory.empty(), "data check: name the folder of ", place.name);
  check(
      1 <= request.workers && request.workers <= 1024,
      "data check: --workers must be 1 to 1024: ", request.workers);
  return request;
}

void write_list(OutputFile& file, const data::SetReport& report) {
  for (const auto& bad : report.bad) file.write(bad.name + "\t" + bad.reason + "\n");
  file.close();
}

}  // namespace

int data_check(const std::vector<std::string>& arguments) {
  const auto request = request_of(arguments);
  if (!request) return 0;
  // Before hours of work, not after.
  std::optional<OutputFile> list;
  if (!request->bad_list.empty()) list.emplace(request->bad_list);
  data::SetReport report;
  {
    DataProgress progress("check " + request->place.name);
    report = data::check_set(
        request->place.name, request->place.directory,
        {.workers = request->workers, .progress = [&](std::int64_t done, std::int64_t of) {
           progress.show(static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(of));
         }});
  }
  if (list) write_list(*list, report);
  (request->json ? print_json_report : print_report)(std::cout, report);
  return static_cast<int>(report.bad.empty() ? ExitCode::kDone : ExitCode::kData);
}

}  // namespace lockstep::cli
