#pragma once

#include "lockstep/cli/env/host_facts.h"

namespace lockstep::cli {

/// Describes this build: versions, compiler, libraries.
Facts build_facts();

}  // namespace lockstep::cli
