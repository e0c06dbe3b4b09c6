#pragma once

#include <cstddef>
#include <vector>

#include "infini_train/include/comm/process_group.h"

namespace infini_train::comm {

/// Places of the links in the list, those from a rank to itself left out, in rounds in which each rank has one link at
/// most: a round can be opened by one split, and by ranks that wait for each other in pairs. The same on every rank.
std::vector<std::vector<size_t>> LinkRounds(const std::vector<Link>& links);

}  // namespace infini_train::comm
