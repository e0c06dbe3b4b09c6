#!/usr/bin/env bash
# Installs what the build needs and is missing, with apt, asking nothing. Debian 12, Ubuntu 24.04.
# scripts/setup.sh [--dev]    --dev: what the format check and the benchmarks need, too
set -euo pipefail

# ocl-icd-opencl-dev: the CMake configuration of libdnnl-dev asks for OpenCL and does not depend on it.
packages=(build-essential cmake ninja-build ccache libdnnl-dev ocl-icd-opencl-dev libgoogle-glog-dev libgflags-dev nlohmann-json3-dev libgtest-dev)
if [ "${1:-}" = --dev ]; then
    packages+=(clang-format-14 libbenchmark-dev)
fi

missing=()
for package in "${packages[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
    echo "setup: everything is installed"
    exit 0
fi

sudo=()
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "setup: run as root, or install sudo; missing: ${missing[*]}" >&2; exit 1; }
    sudo=(sudo)
fi
echo "setup: installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
install() {
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q >"$log" 2>&1 &&
        "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >>"$log" 2>&1
}
install || { cat "$log" >&2; echo "setup: apt-get failed" >&2; exit 1; }
