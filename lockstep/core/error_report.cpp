#include "lockstep/core/error_report.h"

#include <fstream>
#include <iostream>
#include <unistd.h>

#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/frame_log.h"

namespace lockstep {
namespace {

bool tell_launcher(const std::string& message) {
  const auto path = environment("TORCHELASTIC_ERROR_FILE");
  // Only the process that the launcher started speaks for the rank: one further down may fail, and
  // a script go on after it. Another launcher's file has another name.
  if (!path || !path->starts_with(concat("/proc/", ::getppid(), "/fd/"))) return false;
  std::ofstream file(*path);
  file << message << std::flush;
  return file.good();
}

}  // namespace

void report_error(const char* program, const std::exception& error) {
  const std::string message = without_frames(error.what());
  if (!tell_launcher(message)) std::cerr << program << ": " << message << std::endl;
}

}  // namespace lockstep
