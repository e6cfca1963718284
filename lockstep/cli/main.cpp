#include "lockstep/cli/verbs.h"
#include "lockstep/core/exit_code.h"

namespace {

int body(int count, char** arguments) {
  return lockstep::cli::dispatch({arguments + 1, arguments + count});
}

}  // namespace

int main(int count, char** arguments) {
  return lockstep::run_program("lockstep", body, count, arguments);
}
