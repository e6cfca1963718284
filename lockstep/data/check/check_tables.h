#pragma once

#include "lockstep/data/check/check_set.h"

namespace lockstep::data {

/// Reads every number of a set of tensors, tokens or text into its report. Numbers that are none
/// (NaN) make a tensor bad.
void check_tables(SetReport& report, const CheckOptions& options);

}  // namespace lockstep::data
