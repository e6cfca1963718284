#include <algorithm>
#include <iostream>
#include <map>

#include "lockstep/cli/data/data_verbs.h"
#include "lockstep/cli/verbs.h"
#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/core/text.h"

namespace lockstep::cli {
namespace {

using DataVerb = int (*)(const std::vector<std::string>&);

const std::map<std::string, DataVerb> kDataVerbs{{"fetch", data_fetch}, {"check", data_check},
    {"synthesize", data_synthesize}, {"show", data_show}};

constexpr const char* kDataOverview =
    R"(Usage: lockstep data fetch|check|synthesize|show NAME DIR [flags]

Downloads, checks, generates or shows a data set.

  fetch NAME DIR                    download a set, each file verified by its SHA-256
  check NAME DIR                    read every file and report what the set holds, and which are bad
  synthesize NAME DIR               generate a set to learn from, in the real one's format, offline
  show NAME DIR --output FILE       make a page of its images, what augmentation makes of them, and each rank's share

Examples:
  lockstep data fetch cifar100 /data/cifar100
  lockstep data check images:/data/flowers --bad-list bad.txt
  lockstep data synthesize cifar100 /tmp/cifar100 --train 5000 --test 1000
  lockstep data show images:/data/flowers --augment timm --output flowers.html
  lockstep data fetch --help                         all flags of one of them
)";

}  // namespace

void check_has_folder(const std::string& verb, const DataPlace& place) {
  if (!place.directory.empty()) return;
  const auto& sets = data::checked_set_names();
  const bool is_set = std::find(sets.begin(), sets.end(), place.name) != sets.end();
  check(!is_set, "data ", verb, ": name the folder of ", place.name, ": ", place.name, ":DIR");
  throw InvalidArgument(concat("data ", verb, ": there is no set ", place.name,
      "; name a set and its folder, such as cifar100:", place.name, " (the sets are ", joined(sets),
      ")"));
}

int data(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    std::cerr << kDataOverview;
    return static_cast<int>(ExitCode::kUsage);
  }
  const std::string& word = arguments.front();
  if (word == "--help" || word == "-h") {
    std::cout << kDataOverview;
    return 0;
  }
  const auto verb = kDataVerbs.find(word);
  if (verb != kDataVerbs.end()) return verb->second({arguments.begin() + 1, arguments.end()});
  std::vector<std::string> known;
  for (const auto& each : kDataVerbs) known.push_back(each.first);
  throw InvalidArgument(concat("data: there is no ", word, did_you_mean(word, known),
      " (choose fetch, check, synthesize or show)"));
}

}  // namespace lockstep::cli
