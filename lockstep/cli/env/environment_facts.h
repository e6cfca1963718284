#pragma once

#include "lockstep/cli/env/host_facts.h"

namespace lockstep::cli {

/// Describes this build: versions, compiler, libraries.
Facts build_facts();

/// Describes build, host and the variables that change how fast or where ranks run: what `lockstep
/// env --json` prints and a bench keeps.
Facts environment_facts();

}  // namespace lockstep::cli
