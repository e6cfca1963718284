#pragma once

#include "lockstep/data/check/set_report.h"

namespace lockstep::data {

/// Each fills a report whose set and directory are known.
void check_mnist(SetReport& report, bool fashion);
void check_cifar(SetReport& report, bool hundred);
void check_images(SetReport& report, const CheckOptions& options);

}  // namespace lockstep::data
