#!/usr/bin/env bash
# Formats all C++ of the repository. --check: changes nothing, fails if something would change.
set -euo pipefail
cd "$(dirname "$0")/.."

# One version everywhere: others break lines elsewhere.
command -v clang-format-14 >/dev/null || { echo "format: clang-format-14 is missing; scripts/setup.sh --dev installs it" >&2; exit 1; }
mode=(-i)
[ "${1:-}" = --check ] && mode=(--dry-run -Werror)
git ls-files -z --cached --others --exclude-standard '*.h' '*.cc' '*.cu' '*.cuh' | xargs -0 -r clang-format-14 "${mode[@]}"
