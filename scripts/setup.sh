#!/usr/bin/env bash
# Installs what the build needs and is missing, with apt, asking nothing. Debian 12, Ubuntu 24.04.
# scripts/setup.sh [--dev|--cuda]    --dev: what the format check and the benchmarks need, too
#                                    --cuda: cuDNN's C++ front end, headers alone, from PyPI into build-deps/ (the CUDA Toolkit, cuDNN and NCCL
#                                    are NVIDIA's to install)
set -euo pipefail

# ocl-icd-opencl-dev: the CMake configuration of libdnnl-dev asks for OpenCL and does not depend on it.
packages=(build-essential cmake ninja-build ccache libdnnl-dev ocl-icd-opencl-dev libgoogle-glog-dev libgflags-dev nlohmann-json3-dev libpcre2-dev libxxhash-dev libgloo-dev libgtest-dev)
if [ "${1:-}" = --dev ]; then
    packages+=(clang-format-14 libbenchmark-dev)
elif [ "${1:-}" = --cuda ]; then
    packages+=(python3-pip unzip)
fi

missing=()
for package in "${packages[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
install_frontend() {
    local version=1.18.0 folder
    folder=$(dirname "$0")/../build-deps/cudnn_frontend
    [ -f "$folder/include/cudnn_frontend.h" ] && return
    mkdir -p "$folder"
    python3 -m pip download -q --no-deps --only-binary=:all: --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 \
        --python-version 3.12 -d "$folder" "nvidia-cudnn-frontend==$version" &&
        unzip -qo "$folder/nvidia_cudnn_frontend-$version"*.whl 'include/*' -d "$folder" ||
        echo "setup: no cuDNN front end; attention in bfloat16 will be our own kernels" >&2
}

if [ ${#missing[@]} -eq 0 ]; then
    [ "${1:-}" != --cuda ] || install_frontend
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
[ "${1:-}" != --cuda ] || install_frontend
