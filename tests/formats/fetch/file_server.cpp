#include "tests/formats/fetch/file_server.h"

#include <chrono>
#include <cstdio>
#include <memory>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sstream>
#include <stdexcept>
#include <stdlib.h>
#include <unistd.h>

#include "lockstep/launch/ranks/worker_environment.h"

namespace lockstep::testing {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);

launch::ChildOptions options_for(const std::filesystem::path& folder,
    const std::filesystem::path& certificate, const std::filesystem::path& key) {
  launch::ChildOptions options;
  options.program = "/usr/bin/env";
  options.arguments = {"python3", LOCKSTEP_FILE_SERVER, folder};
  if (!certificate.empty()) {
    options.arguments.push_back(certificate);
    options.arguments.push_back(key);
  }
  options.environment = launch::current_environment();
  return options;
}

constexpr long kHour = 3600;

struct Free {
  void operator()(EVP_PKEY* key) const noexcept { EVP_PKEY_free(key); }
  void operator()(X509* certificate) const noexcept { X509_free(certificate); }
  void operator()(X509_EXTENSION* extension) const noexcept { X509_EXTENSION_free(extension); }
  void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};

void require(bool success) {
  if (!success) throw std::runtime_error("OpenSSL could not make a certificate");
}

void extend(X509* certificate, int kind, const char* text) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, certificate, certificate, nullptr, nullptr, 0);
  const std::unique_ptr<X509_EXTENSION, Free> extension(
      X509V3_EXT_conf_nid(nullptr, &context, kind, text));
  require(extension && X509_add_ext(certificate, extension.get(), -1) == 1);
}

std::unique_ptr<std::FILE, Free> open(const std::filesystem::path& path) {
  std::unique_ptr<std::FILE, Free> file(std::fopen(path.c_str(), "wx"));
  require(file != nullptr);
  return file;
}

}  // namespace

FileServer::FileServer(const std::filesystem::path& folder,
    const std::filesystem::path& certificate, const std::filesystem::path& key)
    : process_(options_for(folder, certificate, key)),
      output_(process_.take_output()),
      scheme_(certificate.empty() ? "http" : "https") {
  ::setenv("no_proxy", "127.0.0.1,localhost", 1);  // whoever asks it must not ask a proxy
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (text_.find('\n') == std::string::npos) {
    if (std::chrono::steady_clock::now() > end || process_.status()) {
      throw std::runtime_error("the file server did not start");
    }
    pollfd waited{output_.get(), POLLIN, 0};
    ::poll(&waited, 1, 100);
    read();
  }
  std::string word;
  std::istringstream(text_) >> word >> port_;
  text_.erase(0, text_.find('\n') + 1);
}

std::string FileServer::address(const std::string& behaviour) const {
  return scheme_ + "://127.0.0.1:" + std::to_string(port_) + "/" + behaviour;
}

std::vector<std::string> FileServer::requests() {
  read();
  std::vector<std::string> lines;
  std::istringstream text(text_);
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  text_.clear();
  return lines;
}

void FileServer::read() {
  char bytes[4096];
  for (ssize_t size = 1; size > 0;) {
    size = ::read(output_.get(), bytes, sizeof(bytes));
    if (size > 0) text_.append(bytes, static_cast<std::size_t>(size));
  }
}

Certificate make_certificate(const std::filesystem::path& folder, const std::string& name) {
  const std::unique_ptr<EVP_PKEY, Free> key(EVP_EC_gen("P-256"));
  const std::unique_ptr<X509, Free> certificate(X509_new());
  require(key && certificate);
  X509_set_version(certificate.get(), X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -kHour);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), kHour);
  X509_NAME* subject = X509_get_subject_name(certificate.get());
  X509_NAME_add_entry_by_txt(
      subject, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  X509_set_issuer_name(certificate.get(), subject);
  X509_set_pubkey(certificate.get(), key.get());
  extend(certificate.get(), NID_basic_constraints, "critical,CA:TRUE");
  extend(certificate.get(), NID_subject_alt_name, "IP:127.0.0.1");
  require(X509_sign(certificate.get(), key.get(), EVP_sha256()) > 0);
  const Certificate files{folder / (name + ".pem"), folder / (name + ".key")};
  require(PEM_write_X509(open(files.certificate).get(), certificate.get()) == 1);
  require(PEM_write_PrivateKey(
              open(files.key).get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) == 1);
  return files;
}

}  // namespace lockstep::testing
