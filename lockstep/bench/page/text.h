#pragma once

#include <string>

#include "lockstep/bench/page/page.h"

namespace lockstep::bench::page {

/// Writes a table for a terminal; what could steer one is replaced. Throws as
/// check_table().
std::string to_text(const Table& table);

/// Writes question, tables and conclusion of a section for a terminal; figures are left out.
std::string to_text(const Section& section);

}  // namespace lockstep::bench::page
