#include "lockstep/cli/sibling_program.h"

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <unistd.h>

#include "lockstep/core/error.h"
#include "lockstep/core/file_descriptor.h"
#include "lockstep/core/process.h"
#include "lockstep/launch/ranks/worker_environment.h"

namespace lockstep::cli {
namespace {

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

std::filesystem::path own_folder(const std::string& verb) {
  return std::filesystem::path(own_program(verb)).parent_path();
}

std::string sibling_program(const std::string& verb, const std::string& name) {
  const std::filesystem::path folder = own_folder(verb);
  const std::string path = folder / name;
  if (::access(path.c_str(), X_OK) == 0) return path;
  throw std::system_error(errno, std::generic_category(),
      concat(verb, ": needs ", name, " in ", folder.string(), "; ./dev build ", name,
          " builds it, ./dev install PREFIX ", name == "lockstep-train" ? "train" : "bench",
          " installs it"));
}

void become(const std::string& verb, const std::string& program, std::vector<std::string> arguments,
    Settings settings) {
  auto environment = launch::current_environment();
  if (settings == Settings::kForTensors) environment = launch::for_tensors(environment);
  arguments.insert(arguments.begin(), program);
  ::execve(program.c_str(), pointers(arguments).data(), pointers(environment).data());
  throw_errno(verb + ": execute", program);
}

}  // namespace lockstep::cli
