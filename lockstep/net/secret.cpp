#include "lockstep/net/secret.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file_descriptor.h"

namespace lockstep::net {
namespace {

constexpr std::size_t kFewest = 16, kMost = 4096;

void check_is_private(const FileDescriptor& file, const std::string& path) {
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0) throw_errno("secret: look at", path);
  check(S_ISREG(facts.st_mode), "secret: ", path, " is not a file");
  check(facts.st_uid == ::geteuid() || facts.st_uid == 0, "secret: ", path,
      " belongs to another user, who knows what is in it");
  check((facts.st_mode & (S_IRWXG | S_IRWXO)) == 0, "secret: ", path,
      " may be read or written by other users; chmod 600 ", path);
}

std::string secret_in(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) throw_errno("secret: open", path);
  check_is_private(file, path);
  std::string text(kMost + 1, '\0');
  const ssize_t size = retried([&] { return ::read(file.get(), text.data(), text.size()); });
  if (size < 0) throw_errno("secret: read", path);
  check(static_cast<std::size_t>(size) <= kMost, "secret: ", path, " holds more than ", kMost,
      " bytes");
  text.resize(static_cast<std::size_t>(size));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return text;
}

}  // namespace

std::string shared_secret(const std::string& file) {
  const std::string origin = file.empty() ? kSecretVariable : file;
  std::string secret;
  if (!file.empty()) {
    secret = secret_in(file);
  } else if (const auto given = environment(kSecretVariable)) {
    secret = *given;
  } else {
    return {};
  }
  check(secret.size() >= kFewest, "secret: ", origin, " has ", secret.size(),
      " bytes, too few to keep a stranger out; take ", kFewest,
      " or more, such as of: openssl rand -hex 32");
  return secret;
}

}  // namespace lockstep::net
