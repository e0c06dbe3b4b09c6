#pragma once

#include <map>
#include <string>
#include <vector>

namespace infini_train {

/// The flags that decide the numbers of a run, for its checkpoints.
std::map<std::string, std::string> SettingsToSave();

/// --load becomes the folder of one checkpoint, or nothing, and flags that are not given become those of the
/// checkpoint. Returns what the user should know. Throws Error where there is no checkpoint.
std::vector<std::string> ResolveLoad();

}  // namespace infini_train
