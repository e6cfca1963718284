#include <gmock/gmock.h>

#include "tests/formats/fetch/certificate.h"
#include "tests/formats/fetch/download_fixture.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A server of the same bytes that speaks https.
struct SecureOrigin {
  explicit SecureOrigin(const std::filesystem::path& folder)
      : certificate(testing::make_certificate(folder, "ours")),
        server(folder, certificate.certificate, certificate.key) {}

  testing::Certificate certificate;
  testing::FileServer server;
};

class DownloadTls : public testing::DownloadTest {
 protected:
  DownloadTls() : secure_(secure_origin().server) {
    options_.transfer.plain_on_loopback = false;
    options_.transfer.certificates = secure_origin().certificate.certificate;
    secure_.requests();  // those of other tests
  }

  static SecureOrigin& secure_origin() {
    static SecureOrigin secure(origin().directory.path());
    return secure;
  }

  std::string secure(const std::string& behaviour) const { return secure_.address(behaviour); }

  testing::FileServer& secure_;
};

TEST_F(DownloadTls, BringsAFile) {
  EXPECT_TRUE(bring({secure("good")}));
  EXPECT_TRUE(is_complete());
}

TEST_F(DownloadTls, RefusesACertificateThatNobodyVouchesFor) {
  options_.attempts = 1;
  options_.transfer.certificates.clear();
  EXPECT_THAT(refusal({secure("good")}), HasSubstr("SSL certificate problem"));
  options_.transfer.certificates =
      testing::make_certificate(directory_.path(), "other").certificate;
  EXPECT_THAT(refusal({secure("good")}), HasSubstr("SSL certificate problem"));
}

TEST_F(DownloadTls, RefusesACertificateOfAnotherName) {
  std::string address = secure("good");
  address.replace(address.find("127.0.0.1"), 9, "localhost");
  EXPECT_THAT(refusal({address}), HasSubstr("no alternative certificate subject name matches"));
}

TEST_F(DownloadTls, FollowsFiveRedirectsAndNoMore) {
  EXPECT_TRUE(bring({secure("redirect/5")}));
  EXPECT_TRUE(is_complete());
  std::filesystem::remove(file());
  EXPECT_THAT(refusal({secure("redirect/6")}), HasSubstr("Maximum (5) redirects followed"));
}

TEST_F(DownloadTls, NeverFollowsToPlainHttp) {
  EXPECT_THAT(refusal({secure("redirect_to/" + server_.address("good"))}),
      HasSubstr("Protocol \"http\" not supported or disabled"));
  EXPECT_TRUE(server_.requests().empty());
}

TEST_F(DownloadTls, GoesOnWhereTheConnectionBroke) {
  EXPECT_TRUE(bring({secure("cut/200000")}));
  EXPECT_TRUE(is_complete());
  EXPECT_THAT(
      secure_.requests(), ElementsAre("/cut/200000 - -", "/cut/200000 bytes=200000- \"first\""));
}

}  // namespace
}  // namespace lockstep
