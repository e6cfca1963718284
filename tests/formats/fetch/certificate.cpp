#include "tests/formats/fetch/certificate.h"

#include <cstdio>
#include <memory>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdexcept>
#include <string>

namespace lockstep::testing {
namespace {

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
