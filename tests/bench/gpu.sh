#!/usr/bin/env bash
# The whole check of a GPU in under three minutes: parity with the specification, then throughput against a device copy.
# Needs an environment with '.[dev,cuda12]' or '.[dev,cuda13]'; PYTHON names its interpreter.
set -euo pipefail
cd "$(dirname "$0")/../.."
python="${PYTHON:-python3}"

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
"$python" -m pytest -m gpu tests/parity/test_gpu.py -q -p no:cacheprovider
"$python" -m tests.bench.gpu_check
