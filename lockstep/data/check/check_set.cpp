#include "lockstep/core/error.h"
#include "lockstep/data/check/check_parts.h"

namespace lockstep::data {

const std::vector<std::string>& checked_set_names() {
  static const std::vector<std::string> kNames{
      "mnist", "fashion-mnist", "cifar10", "cifar100", "images"};
  return kNames;
}

SetReport check_set(
    const std::string& set, const std::filesystem::path& directory, const CheckOptions& options) {
  check(options.workers > 0, "data check: workers must be positive: ", options.workers);
  SetReport report{.set = set, .directory = directory};
  if (set == "mnist" || set == "fashion-mnist") {
    check_mnist(report, set == "fashion-mnist");
  } else if (set == "cifar10" || set == "cifar100") {
    check_cifar(report, set == "cifar100");
  } else if (set == "images") {
    check_images(report, options);
  } else {
    std::string names;
    for (const auto& name : checked_set_names()) names += (names.empty() ? "" : ", ") + name;
    throw InvalidArgument(concat("data check: there is no set ", set, "; there are ", names));
  }
  return report;
}

}  // namespace lockstep::data
