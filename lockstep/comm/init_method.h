#pragma once

#include <string>

namespace lockstep {

/// Where the ranks of a world meet.
struct InitMethod {
  enum class Kind {
    kEnvironment,  ///< at MASTER_ADDR and MASTER_PORT
    kTcp,
    kFile
  };

  Kind kind = Kind::kEnvironment;
  std::string host = {};  ///< of kTcp; rank 0 listens there
  int port = 0;           ///< of kTcp
  std::string path = {};  ///< of kFile, absolute
};

/// Reads `env://` (or nothing), `tcp://HOST:PORT` or `file:///PATH`; an IPv6 address stands in
/// brackets. Throws InvalidArgument that says what is wrong.
InitMethod parse_init_method(const std::string& url);

}  // namespace lockstep
