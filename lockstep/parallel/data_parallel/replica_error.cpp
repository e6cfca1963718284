#include "lockstep/parallel/data_parallel/replica_error.h"

#include <stdexcept>
#include <string>
#include <system_error>
#include <typeinfo>

#include <c10/util/Exception.h>

#include "lockstep/core/error.h"

namespace lockstep::data_parallel {
namespace {

/// Throws `Kind` with the text if the exception is exactly that.
template <typename Kind>
void throw_if(const std::exception& error, const std::string& text) {
  if (typeid(error) == typeid(Kind)) throw Kind(text);
}

template <typename... Kinds>
void throw_as_one_of(const std::exception& error, const std::string& text) {
  (throw_if<Kinds>(error, text), ...);
}

void throw_in_its_type(const std::exception& error, const std::string& text) {
  throw_as_one_of<
      InvalidArgument, DataError, CommError, TimeoutError, DivergedError, Error,
      std::invalid_argument, std::domain_error, std::length_error, std::out_of_range,
      std::logic_error, std::range_error, std::overflow_error, std::underflow_error,
      std::runtime_error>(error, text);
}

}  // namespace

void throw_from_replica(
    const std::exception_ptr& exception, std::size_t replica, const Place& place) {
  const std::string who = concat("replica ", replica, " (", describe(place), "): ");
  try {
    std::rethrow_exception(exception);
  } catch (c10::Error& error) {
    error.add_context(concat("in ", who.substr(0, who.size() - 2)));
    throw;
  } catch (const std::system_error& error) {
    throw std::system_error(error.code(), who + error.what());
  } catch (const std::exception& error) {
    throw_in_its_type(error, who + error.what());
    std::throw_with_nested(Error(who + error.what()));
  } catch (...) {
    std::throw_with_nested(Error(who + "an exception of an unknown type"));
  }
}

}  // namespace lockstep::data_parallel
