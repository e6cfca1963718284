#include "lockstep/formats/fetch/transfer_rules.h"

#include <charconv>
#include <memory>
#include <new>

#include <curl/curl.h>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

struct FreeUrl {
  void operator()(CURLU* url) const noexcept { curl_url_cleanup(url); }
};

/// Gives a part of an address; empty when it has none.
std::string part_of(CURLU* url, CURLUPart part) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, 0) != CURLUE_OK) return "";
  const std::string value(text);
  curl_free(text);
  return value;
}

bool is_loopback(const std::string& host) {
  return host == "127.0.0.1" || host == "[::1]" || host == "localhost";
}

}  // namespace

void check_download_address(const std::string& address, bool plain_on_loopback) {
  const std::unique_ptr<CURLU, FreeUrl> url(curl_url());
  if (!url) throw std::bad_alloc();
  check(
      curl_url_set(url.get(), CURLUPART_URL, address.c_str(), 0) == CURLUE_OK,
      "download: this is no https address: ", address);
  check(
      part_of(url.get(), CURLUPART_USER).empty() && part_of(url.get(), CURLUPART_PASSWORD).empty(),
      "download: an address must hold no password, logs would show it");
  const std::string scheme = part_of(url.get(), CURLUPART_SCHEME);
  const bool plain =
      plain_on_loopback && scheme == "http" && is_loopback(part_of(url.get(), CURLUPART_HOST));
  check(plain || scheme == "https", "download: only https is taken: ", address);
}

bool status_may_pass(long status) {
  return status == 408 || status == 416 || status == 429 || status == 500 || status == 502 ||
         status == 503 || status == 504;
}

std::optional<std::uint64_t> first_byte_of(const std::string& content_range) {
  const std::string unit = "bytes ";
  if (content_range.compare(0, unit.size(), unit) != 0) return std::nullopt;
  std::uint64_t first = 0;
  const char* end = content_range.data() + content_range.size();
  const auto [stop, error] = std::from_chars(content_range.data() + unit.size(), end, first);
  if (error != std::errc() || stop == end || *stop != '-') return std::nullopt;
  return first;
}

bool is_strong_tag(const std::string& tag) {
  return tag.size() >= 2 && tag.front() == '"' && tag.back() == '"';
}

}  // namespace lockstep
