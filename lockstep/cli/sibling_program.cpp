#include "lockstep/cli/sibling_program.h"

#include <filesystem>

#include <unistd.h>

#include "lockstep/core/file_descriptor.h"
#include "lockstep/launch/worker_environment.h"

namespace lockstep::cli {
namespace {

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

std::string sibling_program(const std::string& verb, const std::string& name) {
  const auto self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string path = self.parent_path() / name;
  if (::access(path.c_str(), X_OK) != 0) throw_errno(verb + ": find", path);
  return path;
}

void become(
    const std::string& verb, const std::string& program, std::vector<std::string> arguments) {
  auto environment = launch::with_allocator_tunables(launch::current_environment());
  arguments.insert(arguments.begin(), program);
  ::execve(program.c_str(), pointers(arguments).data(), pointers(environment).data());
  throw_errno(verb + ": execute", program);
}

}  // namespace lockstep::cli
