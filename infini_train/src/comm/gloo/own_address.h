#pragma once

#include <functional>
#include <string>
#include <vector>

#include "infini_train/include/comm/process_place.h"

namespace infini_train::comm {

/// The address of this host, as digits, from which it reaches the given one (a name or an address, version 4 or 6).
/// Nothing is sent. Throws Error when it cannot be reached.
std::string AddressTowards(const std::string& address, int port);

/// Where the other processes of the run reach this one: its address towards MASTER_ADDR. On the master's own host that
/// may be a loopback one; when another process has a better one, the address towards that process. Collective over the
/// processes by exchange_text: the text of each.
std::string OwnAddress(const ProcessPlace& place,
                       const std::function<std::vector<std::string>(const std::string&)>& exchange_text);

}  // namespace infini_train::comm
