#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/launch/child_process.h"

namespace lockstep::testing {

/// A certificate that vouches for 127.0.0.1 and for itself, and its key, as PEM files.
struct Certificate {
  std::filesystem::path certificate;
  std::filesystem::path key;
};

/// Makes a new key and its certificate, good for an hour, as NAME.pem and NAME.key.
Certificate make_certificate(const std::filesystem::path& folder, const std::string& name);

/// Runs file_server.py, which serves a folder on loopback, well or badly, as long as it lives.
class FileServer {
 public:
  /// Serves by http, or by https with a certificate and its key.
  explicit FileServer(const std::filesystem::path& folder,
      const std::filesystem::path& certificate = {}, const std::filesystem::path& key = {});

  /// Returns the address of a file, or of a behaviour of FOLDER/content: `good`, `cut/1000`, ...
  std::string address(const std::string& behaviour) const;

  int port() const { return port_; }

  /// Returns the requests since the last call: path, Range, If-Range.
  std::vector<std::string> requests();

 private:
  void read();

  launch::ChildProcess process_;
  FileDescriptor output_;
  std::string text_;
  std::string scheme_;
  int port_ = 0;
};

}  // namespace lockstep::testing
