#include "tests/formats/fetch/file_server.h"

#include <chrono>
#include <poll.h>
#include <sstream>
#include <stdexcept>
#include <stdlib.h>
#include <unistd.h>

#include "lockstep/launch/ranks/worker_environment.h"

namespace lockstep::testing {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);

launch::ChildOptions options_for(const std::filesystem::path& folder,
    const std::filesystem::path& certificate, const std::filesystem::path& key) {
  launch::ChildOptions options;
  options.program = "/usr/bin/env";
  options.arguments = {"python3", LOCKSTEP_FILE_SERVER, folder};
  if (!certificate.empty()) {
    options.arguments.push_back(certificate);
    options.arguments.push_back(key);
  }
  options.environment = launch::current_environment();
  return options;
}

}  // namespace

FileServer::FileServer(const std::filesystem::path& folder,
    const std::filesystem::path& certificate, const std::filesystem::path& key)
    : process_(options_for(folder, certificate, key)),
      output_(process_.take_output()),
      scheme_(certificate.empty() ? "http" : "https") {
  ::setenv("no_proxy", "127.0.0.1,localhost", 1);  // whoever asks it must not ask a proxy
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (text_.find('\n') == std::string::npos) {
    if (std::chrono::steady_clock::now() > end || process_.status()) {
      throw std::runtime_error("the file server did not start");
    }
    pollfd waited{output_.get(), POLLIN, 0};
    ::poll(&waited, 1, 100);
    read();
  }
  std::string word;
  std::istringstream(text_) >> word >> port_;
  text_.erase(0, text_.find('\n') + 1);
}

std::string FileServer::address(const std::string& behaviour) const {
  return scheme_ + "://127.0.0.1:" + std::to_string(port_) + "/" + behaviour;
}

std::vector<std::string> FileServer::requests() {
  read();
  std::vector<std::string> lines;
  std::istringstream text(text_);
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  text_.clear();
  return lines;
}

void FileServer::read() {
  char bytes[4096];
  for (ssize_t size = 1; size > 0;) {
    size = ::read(output_.get(), bytes, sizeof(bytes));
    if (size > 0) text_.append(bytes, static_cast<std::size_t>(size));
  }
}

}  // namespace lockstep::testing
