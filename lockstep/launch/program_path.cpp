#include "lockstep/launch/program_path.h"

#include <filesystem>
#include <sstream>

#include <unistd.h>

#include "lockstep/core/error.h"

namespace lockstep::launch {
namespace {

bool is_file(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

bool is_executable(const std::string& path) {
  return is_file(path) && ::access(path.c_str(), X_OK) == 0;
}

}  // namespace

std::string find_program(const std::string& name, const std::string& search_path) {
  check(!name.empty(), "run: the program's name is empty");
  if (name.find('/') == std::string::npos) {
    std::istringstream folders(search_path);
    for (std::string folder; std::getline(folders, folder, ':');) {
      const std::string path = (folder.empty() ? "." : folder) + "/" + name;
      if (is_executable(path)) return path;
    }
  }
  const std::string path = name.find('/') == std::string::npos ? "./" + name : name;
  check(
      std::filesystem::exists(path), "run: there is no program ", name,
      name == path ? "" : ", neither in PATH nor in the current directory");
  check(is_file(path), "run: ", name, " is not a file that can be executed");
  check(
      is_executable(path), "run: ", name, " may not be executed; chmod +x ", path,
      ", or name its interpreter first");
  return path;
}

}  // namespace lockstep::launch
