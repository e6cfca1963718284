#include "lockstep/core/exit_code.h"

#include <csignal>
#include <new>
#include <system_error>

#include "lockstep/core/process.h"

namespace lockstep {

ExitCode exit_code_of(const std::exception& error) {
  if (dynamic_cast<const InvalidArgument*>(&error)) return ExitCode::kUsage;
  if (dynamic_cast<const DataError*>(&error)) return ExitCode::kData;
  if (dynamic_cast<const CommError*>(&error)) return ExitCode::kPeersLost;
  if (dynamic_cast<const DivergedError*>(&error)) return ExitCode::kDiverged;
  if (dynamic_cast<const MemoryError*>(&error)) return ExitCode::kEnvironment;
  if (dynamic_cast<const std::system_error*>(&error)) return ExitCode::kEnvironment;
  if (dynamic_cast<const std::bad_alloc*>(&error)) return ExitCode::kEnvironment;
  return ExitCode::kUnclassified;
}

int run_program(const char* program, int (*body)(int, char**), int argc, char** argv) {
  repair_inherited_state();
  const FrameFilter filter;
  try {
    return body(argc, argv);
  } catch (const StoppedError& stopped) {
    std::raise(stopped.signal());
    return 128 + stopped.signal();  // it is ignored
  } catch (const std::exception& error) {
    report_error(program, error);
    return static_cast<int>(exit_code_of(error));
  }
}

}  // namespace lockstep
