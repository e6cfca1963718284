#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "lockstep/cli/data/data_progress.h"
#include "lockstep/cli/data/data_verbs.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/data/download/fetch_set.h"
#include "lockstep/flags/flag_table.h"

namespace lockstep::cli {
namespace {

constexpr const char* kFetchDescription =
    R"(Downloads a data set into DIR: mnist, fashion-mnist, cifar10, cifar100.

Only https is used, and every file must have its known size and SHA-256. An interrupted download
leaves DIR/.FILE.part, and the next one continues it. Archives are unpacked; files that are there
and right are left alone. Proxies are taken from https_proxy and similar variables, certificate
authorities from SSL_CERT_FILE if it is set.
)";

constexpr const char* kFetchExamples = R"(Examples:
  lockstep data fetch cifar100 /data/cifar100
  lockstep data fetch mnist /data/mnist --mirror https://files.example.org/mnist

Exit codes: 0 done or already there, 2 bad flags, 3 a file with other bytes, 4 no network or disk.)";

struct FetchRequest {
  std::string set, directory;
  DataPlace place;
  std::string mirror;
  bool json = false;
};

/// Reads the command line; nothing if it asked for help, which is then printed.
std::optional<FetchRequest> fetch_request(const std::vector<std::string>& arguments) {
  using R = FetchRequest;
  const FlagTable<R> table({.verb = "data fetch",
                               .usage = "lockstep data fetch NAME DIR [--mirror URL] [--json]",
                               .description = kFetchDescription,
                               .footer = kFetchExamples},
      {{"Arguments",
           {flag("NAME", "", "the set", &R::set).required(),
               flag("DIR", "", "folder for its files; created if missing", &R::directory)}},
          {"Options", {flag("--mirror", "URL", "take the files from this folder only", &R::mirror),
                          flag_on("--json", "print one JSON object", &R::json)}}});
  auto request = table.request(arguments, std::cout);
  if (request) request->place = data_place("fetch", request->set, request->directory);
  return request;
}

DownloadOptions options_of(DataProgress& progress) {
  DownloadOptions options;
  options.transfer.certificates = environment("SSL_CERT_FILE").value_or("");
  options.progress = [&progress](
                         std::uint64_t bytes, std::uint64_t of) { progress.show(bytes, of); };
  options.notice = [&progress](const std::string& text) { progress.notice(text); };
  return options;
}

void print_fetch(const FetchRequest& request, const std::vector<data::FetchedFile>& files) {
  bool news = false;
  for (const auto& file : files) {
    news = news || file.downloaded;
    std::cout << file.name << ": " << file.bytes << " bytes, "
              << (file.downloaded ? "downloaded, SHA-256 correct"
                                  : "already there, SHA-256 correct")
              << '\n';
  }
  std::cout << request.place.name << (news ? " is in " : " was in ")
            << request.place.directory.string() << '\n';
}

void print_fetch_json(const FetchRequest& request, const std::vector<data::FetchedFile>& files) {
  nlohmann::ordered_json object{{"v", 1}, {"set", request.place.name},
      {"directory", request.place.directory.string()}, {"files", nlohmann::ordered_json::array()}};
  for (const auto& file : files) {
    object["files"].push_back(
        {{"name", file.name}, {"bytes", file.bytes}, {"downloaded", file.downloaded}});
  }
  std::cout << object.dump() << '\n';
}

}  // namespace

int data_fetch(const std::vector<std::string>& arguments) {
  const auto request = fetch_request(arguments);
  if (!request) return 0;
  const auto& set = data::known_set(request->place.name);
  check_has_folder("fetch", request->place);
  std::vector<data::FetchedFile> files;
  {
    DataProgress progress("fetch " + set.name);
    files = data::fetch_set(set, request->place.directory, request->mirror, options_of(progress));
  }
  (request->json ? print_fetch_json : print_fetch)(*request, files);
  return 0;
}

}  // namespace lockstep::cli
