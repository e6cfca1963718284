#pragma once

#include <string>
#include <vector>

#include "lockstep/formats/fetch/download.h"

namespace lockstep::data {

/// Is a data set that may be fetched, as its authors published it.
struct KnownSet {
  std::string name;
  std::vector<Download> files;
  std::string archive_folder;  ///< the one file is an archive of this folder; empty: it is none
};

/// Lists the sets that can be fetched.
const std::vector<KnownSet>& known_sets();

/// Finds one by name. An unknown name, or a set that its owners give to nobody without an account,
/// is an InvalidArgument that says what to do instead.
const KnownSet& known_set(const std::string& name);

}  // namespace lockstep::data
