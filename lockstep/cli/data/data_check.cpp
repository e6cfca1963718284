#include <algorithm>
#include <iostream>
#include <optional>

#include "lockstep/cli/data/data_progress.h"
#include "lockstep/cli/data/data_verbs.h"
#include "lockstep/core/cpu_share.h"
#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/data/image_sets.h"
#include "lockstep/flags/flag_table.h"
#include "lockstep/formats/output_file.h"

namespace lockstep::cli {
namespace {

constexpr const char* kCheckDescription =
    R"(Reads every file of a data set, as training would, and reports what it holds.

The sets are mnist, fashion-mnist, cifar10, cifar100 and images, a folder of class folders with
JPEG and PNG files, perhaps in train, val and test. Every image is decoded.
)";

constexpr const char* kCheckExamples = R"(Examples:
  lockstep data check cifar10 /data/cifar10
  lockstep data check images:/data/flowers --workers 4 --bad-list bad.txt
  lockstep data check fashion-mnist --json

Exit codes: 0 all files are good, 2 bad flags, 3 some are bad, 4 no permission or disk.)";

struct CheckRequest {
  std::string set, directory;
  DataPlace place;
  std::string bad_list;
  int workers = usable_cpu_count();
  bool json = false;
};

/// Reads the command line; nothing if it asked for help, which is then printed.
std::optional<CheckRequest> check_request(const std::vector<std::string>& arguments) {
  using R = CheckRequest;
  const FlagTable<R> table({.verb = "data check",
                               .usage = "lockstep data check NAME DIR [flags]",
                               .description = kCheckDescription,
                               .footer = kCheckExamples},
      {{"Arguments", {flag("NAME", "", "the set, or NAME:DIR", &R::set).required(),
                         flag("DIR", "", "folder of its files", &R::directory)}},
          {"Options",
              {flag("--workers", "N", "threads that decode images", &R::workers)
                      .from(1)
                      .to(1024)
                      .usually("as many as cores"),
                  flag("--bad-list", "FILE",
                      "write the bad files there: name, tab, reason; a new file", &R::bad_list),
                  flag_on("--json", "print one JSON object", &R::json)}}});
  auto request = table.request(arguments, std::cout);
  if (!request) return std::nullopt;
  request->place = data_place("check", request->set, request->directory);
  auto& place = request->place;
  if (place.directory.empty() && place.name == "fashion-mnist")
    place.directory = data::kFashionMnistDirectory;
  check_has_folder("check", place);
  return request;
}

void write_list(OutputFile& file, const data::SetReport& report) {
  for (const auto& bad : report.bad) file.write(bad.name + "\t" + bad.reason + "\n");
  file.close();
}

}  // namespace

int data_check(const std::vector<std::string>& arguments) {
  const auto request = check_request(arguments);
  if (!request) return 0;
  // Before hours of work, not after.
  std::optional<OutputFile> list;
  if (!request->bad_list.empty()) list.emplace(request->bad_list);
  data::SetReport report;
  {
    DataProgress progress("check " + request->place.name);
    report = data::check_set(request->place.name, request->place.directory,
        {.workers = request->workers, .progress = [&](std::int64_t done, std::int64_t of) {
           progress.show(static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(of));
         }});
  }
  if (list) write_list(*list, report);
  (request->json ? print_json_report : print_report)(std::cout, report);
  return static_cast<int>(report.bad.empty() ? ExitCode::kDone : ExitCode::kData);
}

}  // namespace lockstep::cli
