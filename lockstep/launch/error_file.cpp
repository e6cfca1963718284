#include "lockstep/launch/error_file.h"

#include <nlohmann/json.hpp>
#include <sys/mman.h>
#include <unistd.h>

namespace lockstep::launch {
namespace {

constexpr std::size_t kLongest = std::size_t{1} << 16;

}  // namespace

ErrorFile::ErrorFile() : file_(::memfd_create("lockstep-error", MFD_CLOEXEC)) {
  if (!file_) throw_errno("launch: make a worker's error file");
}

std::string ErrorFile::path() const {
  return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(file_.get());
}

std::string ErrorFile::message() const {
  std::string content(kLongest, '\0');
  const ssize_t size = ::pread(file_.get(), content.data(), content.size(), 0);
  content.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  return error_file_message(content);
}

std::string error_file_message(const std::string& content) {
  const auto json = nlohmann::json::parse(content, nullptr, false);
  if (!json.is_object() || !json.contains("message")) return content;
  const auto& message = json["message"];
  if (message.is_string()) return message.get<std::string>();
  if (message.is_object() && message.contains("message") && message["message"].is_string()) {
    return message["message"].get<std::string>();
  }
  return content;
}

}  // namespace lockstep::launch
