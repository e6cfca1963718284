#include <iostream>
#include <optional>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "lockstep/cli/data/data_progress.h"
#include "lockstep/cli/data/data_verbs.h"
#include "lockstep/cli/flags/flag_parser.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/data/download/fetch_set.h"

namespace lockstep::cli {
namespace {

constexpr const char* kDescription =
    R"(Downloads a data set into DIR: mnist, fashion-mnist, cifar10, cifar100.

Only https is used, and every file must have the size and SHA-256 that are known for it. What an
interrupted download has brought is kept in DIR/.FILE.part, and the next one goes on there.
Archives are unpacked; what is there already and right is left. Proxies are taken from https_proxy
and its like, authorities for certificates from SSL_CERT_FILE if it is set.
)";

constexpr const char* kExamples = R"(Examples:
  lockstep data fetch cifar100 /data/cifar100
  lockstep data fetch mnist /data/mnist --mirror https://files.example.org/mnist

Exit codes: 0 done or already there, 2 bad flags, 3 other bytes than must be, 4 no net or disk.)";

struct Request {
  DataPlace place;
  std::string mirror;
  bool json = false;
};

/// Reads the command line; nothing if it asked for help, which is then printed.
std::optional<Request> request_of(const std::vector<std::string>& arguments) {
  Request request;
  std::string set;
  std::string directory;
  CLI::App app;
  use_our_layout(app, "Usage: lockstep data fetch NAME DIR [--mirror URL] [--json]");
  app.description(kDescription);
  app.footer(kExamples);
  app.add_option("NAME", set, "the set")->required();
  app.add_option("DIR", directory, "folder for its files; is made");
  app.add_option("--mirror", request.mirror)
      ->type_name("URL")
      ->description("ask only this folder for the files");
  app.add_flag("--json", request.json, "print one JSON object");
  app.set_help_flag("-h,--help", "print this");
  if (!parse_flags(app, "data fetch", arguments)) {
    std::cout << app.help();
    return std::nullopt;
  }
  request.place = data_place("fetch", set, directory);
  return request;
}

DownloadOptions options_of(DataProgress& progress) {
  DownloadOptions options;
  options.transfer.certificates = environment("SSL_CERT_FILE").value_or("");
  options.progress = [&progress](std::uint64_t bytes, std::uint64_t of) {
    progress.show(bytes, of);
  };
  options.notice = [&progress](const std::string& text) { progress.notice(text); };
  return options;
}

void print(const Request& request, const std::vector<data::FetchedFile>& files) {
  bool news = false;
  for (const auto& file : files) {
    news = news || file.downloaded;
    std::cout << file.name << ": " << file.bytes << " bytes, "
              << (file.downloaded ? "downloaded, SHA-256 is right" : "is there already and right")
              << '\n';
  }
  std::cout << request.place.name << (news ? " is in " : " was in ")
            << request.place.directory.string() << '\n';
}

void print_json(const Request& request, const std::vector<data::FetchedFile>& files) {
  nlohmann::ordered_json object{
      {"v", 1},
      {"set", request.place.name},
      {"directory", request.place.directory.string()},
      {"files", nlohmann::ordered_json::array()}};
  for (const auto& file : files) {
    object["files"].push_back(
        {{"name", file.name}, {"bytes", file.bytes}, {"downloaded", file.downloaded}});
  }
  std::cout << object.dump() << '\n';
}

}  // namespace

int data_fetch(const std::vector<std::string>& arguments) {
  const auto request = request_of(arguments);
  if (!request) return 0;
  const auto& set = data::known_set(request->place.name);
  check(!request->place.directory.empty(), "data fetch: name the folder for ", set.name);
  std::vector<data::FetchedFile> files;
  {
    DataProgress progress("fetch " + set.name);
    files = data::fetch_set(set, request->place.directory, request->mirror, options_of(progress));
  }
  (request->json ? print_json : print)(*request, files);
  return 0;
}

}  // namespace lockstep::cli
