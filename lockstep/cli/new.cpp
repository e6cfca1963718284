#include <filesystem>
#include <fstream>
#include <iostream>

#include "lockstep/cli/new_files.h"
#include "lockstep/cli/sibling_program.h"
#include "lockstep/cli/verbs.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file_descriptor.h"
#include "lockstep/flags/flag_table.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

void write(const fs::path& path, const char* text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file) throw_errno("new: write", path);
}

// How CMake finds the Lockstep that this program belongs to: an install, or a build.
std::string package_option() {
  const fs::path above = own_folder("new").parent_path();
  if (fs::exists(above / "LockstepConfig.cmake")) return "-DLockstep_DIR=" + above.string();
  return "-DCMAKE_PREFIX_PATH=" + above.string();
}

void print_next_steps(const std::string& folder) {
  const std::string build = folder + "/build";
  std::cout << folder << ": CMakeLists.txt, nets.cpp, text.cpp. To build and train:\n"
            << "  cmake -S " << folder << " -B " << build << " -DCMAKE_BUILD_TYPE=Release "
            << package_option() << "\n  cmake --build " << build << "\n  ctest --test-dir " << build
            << "\n  lockstep train --plugin " << build << "/nets.so --model chain\n";
}

}  // namespace

int new_project(const std::vector<std::string>& arguments) {
  struct Request {
    std::string folder;
  };
  const FlagTable<Request> table(
      {.verb = "new",
          .usage = "lockstep new DIR",
          .description =
              "Writes a project with models of your own for lockstep train --plugin: "
              "CMakeLists.txt,\n"
              "nets.cpp (models of images) and text.cpp (a language model and its data).\n",
          .footer = "Examples:\n  lockstep new mine"},
      {{"Arguments",
          {flag("DIR", "", "folder to make; it may exist if it is empty", &Request::folder)
                  .required()}}});
  const auto request = table.request(arguments, std::cout);
  if (!request) return 0;
  const std::string& folder = request->folder;
  check(!fs::exists(folder) || (fs::is_directory(folder) && fs::is_empty(folder)), "new: ", folder,
      " exists and is no empty folder");
  fs::create_directories(folder);
  write(fs::path(folder) / "CMakeLists.txt", kNewCMakeLists);
  write(fs::path(folder) / "nets.cpp", kNewNets);
  write(fs::path(folder) / "text.cpp", kNewText);
  print_next_steps(folder);
  return 0;
}

}  // namespace lockstep::cli
